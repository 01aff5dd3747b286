"""The documentation of the action of this name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: run_folder
short_description: write the state of a run into the run's folder on the controller
description:
  - >-
      Runs once, on the controller. When a run ends, this also writes the manifest with the hashes of
      everything that was collected.
author: psfleet (@psfleet)
options:
  run:
    description: The V(run) that M(psfleet.cluster.decide_run) returned.
    type: dict
    required: true
  state:
    description: >-
        The state of the run, for its C(state.json). With V(exported), the collected export of the model is
        checked and put in its place.
    type: str
  event:
    description: A state of the run of which C(training_run_hook) is to be told. With it, the action only notes this state.
    type: str
  endings:
    description: The final tasks of all hosts, as M(psfleet.cluster.trainer_tasks) returns them.
    type: list
    elements: dict
  left_out:
    description: The files that stay on hosts, as M(psfleet.cluster.collect_run) returns them.
    type: list
    elements: str
  hosts:
    description: The hosts from which files were collected, of a run that is only collected again.
    type: list
    elements: str
  global_step:
    description: The last global step that was seen, if any.
    type: int
attributes:
  check_mode:
    support: full
    description: It changes nothing, and says what it would change.
"""

EXAMPLES = r"""
- name: Write the beginning of the run
  psfleet.cluster.run_folder:
    run: "{{ decision.run }}"
    state: running
  run_once: true
"""

RETURN = r"""
to_go_on:
  description: What to do if the run has failed, with each command in a line of its own.
  returned: with O(endings)
  type: str
told:
  description: How to load the exported model.
  returned: with the state V(exported)
  type: list
  elements: str
first:
  description: Whether C(training_run_hook) has not been told of this state of the run before.
  returned: with O(event)
  type: bool
"""
