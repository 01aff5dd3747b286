"""The documentation of the action of this name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: watch_run
short_description: watch a run until it is over, and show its progress
description:
  - Polls the host of the run's lead, and less often all other hosts. Any number of people may watch the same run.
  - >-
      Watching only reads, with one exception. If a program's lead has ended and waits only for tasks that never end by
      themselves, the watcher stops these tasks.
author: psfleet (@psfleet)
options:
  run:
    description: The V(run) that M(psfleet.cluster.decide_run) returned.
    type: dict
    required: true
  paths:
    description: The fact V(cluster_paths).
    type: dict
    required: true
  user:
    description: The user that runs the tasks.
    type: str
    required: true
  poll_seconds:
    description: Seconds between two polls of the lead.
    type: float
    required: true
  plain_seconds:
    description: Seconds between two lines, without a terminal.
    type: float
    required: true
  end_on_failure:
    description: Whether the run of a program fails as soon as systemd gives up one of its tasks.
    type: bool
    required: true
  deadline_minutes:
    description: Minutes after which the run is stopped; 0 for none.
    type: float
    required: true
attributes:
  check_mode:
    support: full
    description: It watches nothing.
"""

EXAMPLES = r"""
- name: Watch the run
  psfleet.cluster.watch_run:
    run: "{{ decision.run }}"
    paths: "{{ cluster_paths }}"
    user: psfleet
    poll_seconds: 2
    plain_seconds: 30
    end_on_failure: true
    deadline_minutes: 0
  delegate_to: "{{ decision.run.lead.host }}"
  run_once: true
  register: outcome
"""

RETURN = r"""
phase:
  description: >-
    How the run ended, such as V(finished), V(failed) or V(stopped); V(lost) if the lead's host stays silent, and no
    client goes on elsewhere; V(not started) in check mode.
  returned: success
  type: str
reason:
  description: Why the run ended, in words.
  returned: success
  type: str
global_step:
  description: The last global step that was seen.
  returned: success
  type: raw
restarts:
  description: How often systemd has restarted the lead.
  returned: success
  type: int
silent_hosts:
  description: The hosts that did not answer at the end.
  returned: success
  type: list
  elements: str
stopped:
  description: For each task that only served and was stopped, how often systemd had restarted it.
  returned: success
  type: dict
beyond_limit:
  description: The workers that joined the run on hosts which C(--limit) leaves out, such as V(worker2 on node3).
  returned: success
  type: list
  elements: str
"""
