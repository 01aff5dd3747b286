"""The documentation of the action of this name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_lease
short_description: take the leases of all hosts, so that one playbook at a time changes them
description:
  - >-
      Takes the leases of all hosts, or of none. They are renewed until they are released, or until C(ansible-
      playbook) ends.
  - In check mode it takes none, and warns about leases that others hold.
author: psfleet (@psfleet)
options:
  state:
    description: Whether to take the leases, or to give them back.
    type: str
    required: true
    choices: [taken, released]
  hosts:
    description: The hosts whose leases are taken or given back.
    type: list
    elements: str
    required: true
  what:
    description: The command that takes the leases, as others see it.
    type: str
    default: ''
  looked:
    description: >-
        For each host, the V(looked) that M(psfleet.cluster.trainer_tasks) returned; a host that was changed after that
        moment is refused.
    type: dict
    default: {}
  file:
    description: The file of the lease on each host; the default is the default of M(psfleet.cluster.host_lease).
    type: path
attributes:
  check_mode:
    support: full
    description: It takes no lease.
"""

EXAMPLES = r"""
- name: Take a lease on all hosts
  psfleet.cluster.cluster_lease:
    state: taken
    hosts: "{{ ansible_play_hosts }}"
    what: deploy.yml
  run_once: true
"""

RETURN = "{}"
