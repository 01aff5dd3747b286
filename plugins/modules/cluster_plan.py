"""The documentation of the action of this name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_plan
short_description: check Ansible's settings and the inventory, and compute the cluster plan
description:
  - Fails with every problem of the settings; if there is none, with every problem of the inventory.
  - docs/contracts.md describes the facts.
author: psfleet (@psfleet)
options:
  proof:
    description: The replication of a run of C(prove.yml), or empty for what the inventory trains.
    type: str
    default: ''
attributes:
  check_mode:
    support: full
    description: It changes nothing.
"""

EXAMPLES = r"""
- name: Compute the plan
  psfleet.cluster.cluster_plan:
  register: computed
  run_once: true
"""

RETURN = r"""
cluster_plan:
  description: Which task runs on which host, at which address and port, with which GPUs.
  returned: success
  type: dict
cluster_settings:
  description: The settings of a run.
  returned: success
  type: dict
cluster_mesh:
  description: The mesh of WireGuard; empty without it.
  returned: success
  type: dict
cluster_paths:
  description: The directories on the hosts.
  returned: success
  type: dict
cluster_programs:
  description: The programs of the user.
  returned: success
  type: raw
cluster_data:
  description: Where the data is, on the controller and on each host, and the user's own model.
  returned: success
  type: dict
cluster_systems:
  description: What the role host_look knows of each operating system, by the name of its file.
  returned: success
  type: dict
cluster_tasks:
  description: The tasks of each host.
  returned: success
  type: dict
cluster_release:
  description: The hash of the trainer's code.
  returned: success
  type: str
cluster_person:
  description: Who typed the command, and on which machine.
  returned: success
  type: str
"""
