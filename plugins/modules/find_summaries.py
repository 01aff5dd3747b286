"""The documentation of the action of this name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: find_summaries
short_description: find the runs on the controller that have summaries for TensorBoard
description:
  - Runs once, on the controller.
author: psfleet (@psfleet)
options:
  runs_directory:
    description: The folder of all runs on the controller.
    type: path
    required: true
  run_id:
    description: The names of runs, separated by commas; empty for all.
    type: str
    required: true
  cluster_name:
    description: The name of the cluster whose runs are shown.
    type: str
    required: true
  required:
    description: Whether to fail if there are no summaries.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: It changes nothing.
"""

EXAMPLES = r"""
- name: Find the summaries
  psfleet.cluster.find_summaries:
    runs_directory: runs
    run_id: ''
    cluster_name: "{{ cluster_plan.cluster_name }}"
  register: found
  run_once: true
"""

RETURN = r"""
sources:
  description: For each name that TensorBoard shows, the folder with its files, for M(psfleet.cluster.carried_manifest).
  returned: success
  type: dict
going_on:
  description: The runs that are going on, each as the V(run) of M(psfleet.cluster.collect_run).
  returned: success
  type: list
  elements: dict
runs:
  description: The folders, on the controller, of the runs with summaries.
  returned: success
  type: list
  elements: str
"""
