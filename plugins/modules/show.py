"""The documentation of the action of this name, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: show
short_description: show a page to the person who typed the command
description:
  - >-
      A page is the table of C(status.yml), C(runs.yml) or C(doctor.yml), the log of a task, a verdict, the
      result of C(prove.yml), or TensorBoard.
author: psfleet (@psfleet)
options:
  page:
    description: The page. A page takes the options whose descriptions name it.
    type: str
    required: true
    choices: [doctor, log, proof, runs, status, tensorboard, verdict]
  runs_directory:
    description: For V(proof), V(runs), V(status) and V(verdict), the folder of all runs on the controller.
    type: path
  cache_directory:
    description: For V(doctor) and V(tensorboard), the cache on the controller.
    type: path
  run_id:
    description: For V(log) and V(verdict), the run; by default the last run.
    type: str
  task:
    description: For V(log), a task such as V(worker1).
    type: str
  lines:
    description: For V(log), how many lines of the end of the log to show.
    type: int
  user:
    description: For V(log), the user that runs the tasks.
    type: str
  follow:
    description: For V(log), whether to show new lines as they are written.
    type: bool
  runs:
    description: For V(proof), the run of each replication; for V(tensorboard), a list of the folders of runs.
    type: raw
  port:
    description: For V(tensorboard), the port of TensorBoard on the controller.
    type: int
  settings:
    description: For V(verdict), the thresholds.
    type: dict
  required:
    description: For V(verdict), whether the action fails if the run is neither proven nor completed.
    type: bool
  brief:
    description: For V(verdict), whether to show only the headline of a good verdict.
    type: bool
attributes:
  check_mode:
    support: full
    description: It starts no listeners on hosts, serves no TensorBoard, and writes no report.
"""

EXAMPLES = r"""
- name: Show the state of all tasks
  psfleet.cluster.show:
    page: status
    runs_directory: runs
  run_once: true
"""

RETURN = r"""
problems:
  description: For each host, why it gave no answer; empty if it answered.
  returned: V(doctor), V(runs) and V(status)
  type: dict
proven:
  description: For each replication, whether its run is proven.
  returned: V(proof)
  type: dict
verdict:
  description: The verdict.
  returned: V(verdict)
  type: str
run_id:
  description: The run that was judged.
  returned: V(verdict)
  type: str
folder:
  description: The folder of this run.
  returned: V(verdict)
  type: str
"""
