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
    description: A state of the run that C(training_run_hook) is told. With it, only this state is written.
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
    description: The hosts from which a run was collected again.
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
  description: What to do if the run failed.
  returned: V(endings)
  type: raw
told:
  description: How to load the exported model.
  returned: V(exported)
  type: list
  elements: str
first:
  description: Whether the hook was not told of this state before.
  returned: V(event)
  type: bool
"""
