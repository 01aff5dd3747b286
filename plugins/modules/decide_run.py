"""The documentation of the action of this name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: decide_run
short_description: decide for the whole cluster which run starts, is resumed, is watched again, stops or is exported
description:
  - Runs on the controller, with the answers of all hosts. It fails with all reasons why there is no such run.
author: psfleet (@psfleet)
options:
  state:
    description: What is to happen to the run.
    type: str
    required: true
    choices: [started, stopped, exported]
  run_id:
    description: >-
        The name of the run. If it is empty, a new run starts, any run that is going on stops, and the newest
        run is exported.
    type: str
    default: ''
  runs_directory:
    description: The folder of all runs on the controller.
    type: path
    required: true
  found:
    description: >-
        The answer of each host to M(psfleet.cluster.trainer_tasks). V(exported) does not need it: the action asks the
        exporting host itself.
    type: dict
  model:
    description: The model of a program that is exported.
    type: str
    default: ''
  inputs:
    description: The inputs of this model.
    type: str
    default: ''
  outputs:
    description: The outputs of this model.
    type: str
    default: ''
attributes:
  check_mode:
    support: full
    description: It makes no folder for a new run.
"""

EXAMPLES = r"""
- name: Decide which run starts
  psfleet.cluster.decide_run:
    state: started
    run_id: night
    runs_directory: runs
    found: "{{ dict(ansible_play_hosts | zip(ansible_play_hosts | map('extract', hostvars, 'found'))) }}"
  register: decision
  run_once: true
"""

RETURN = r"""
run:
  description: >-
      The run, with C(id), C(folder), C(settings), C(tasks), C(lead), and C(told), which is for people. A run
      that starts has its C(action), and the tasks that are C(starting). The C(id) is empty if no run is going
      on that could stop.
  returned: success
  type: dict
collected:
  description: The runs of this cluster that hosts may delete, the newest first.
  returned: V(started)
  type: list
  elements: str
"""
