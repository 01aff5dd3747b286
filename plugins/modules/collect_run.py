"""The documentation of the action of this name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: collect_run
short_description: collect the files of a run from a host into the run's folder on the controller
description:
  - >-
      Packs the files on the host, fetches the archive as the connecting user, unpacks what the host's tasks
      may leave, and removes the archive from the host.
  - A host that cannot pack its files in time is named in V(left_out), and does not fail the task.
author: psfleet (@psfleet)
options:
  run:
    description: The V(run) that M(psfleet.cluster.decide_run) returned.
    type: dict
    required: true
  tasks:
    description: The tasks of the run on this host, from the V(tasks) of the run.
    type: list
    elements: dict
    required: true
  paths:
    description: The fact V(cluster_paths).
    type: dict
    required: true
  limit_megabytes:
    description: The most megabytes to collect from the host.
    type: int
    required: true
  limit_of:
    description: The variable that has this limit, for messages.
    type: str
    default: training_run_collect_megabytes
  folders:
    description: The folders of the run to collect; by default, the folders that the tasks write.
    type: list
    elements: str
    default: []
  only:
    description: Collect just the files with this text in their names.
    type: str
    default: ''
  exported:
    description: Whether to collect only the export of the model, for M(psfleet.cluster.run_folder).
    type: bool
    default: false
  patience_seconds:
    description: Seconds in which the host must pack its files; one second is added for each 5 MB of the limit.
    type: float
    default: 300
attributes:
  check_mode:
    support: full
    description: It packs and collects nothing.
"""

EXAMPLES = r"""
- name: Collect the files of the run
  psfleet.cluster.collect_run:
    run: "{{ decision.run }}"
    tasks: "{{ decision.run.tasks | selectattr('host', 'equalto', inventory_hostname) }}"
    limit_megabytes: 2000
    paths: "{{ cluster_paths }}"
"""

RETURN = r"""
files:
  description: The names of the files that were collected, in the run's folder.
  returned: always
  type: list
  elements: str
left_out:
  description: What stays on the host, each with the reason.
  returned: always
  type: list
  elements: str
"""
