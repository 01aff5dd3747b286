"""Starts, stops or describes the tasks of one host, or reloads their units."""

from __future__ import annotations

DOCUMENTATION = r"""
module: trainer_tasks
short_description: Starts, stops or describes the tasks of one host, or reloads their units
description:
  - A task that fails to start does not make the module fail. Its state and its reason are returned, so that the run can
    be ended everywhere before the playbook fails.
  - V(state=reloaded) makes systemd follow the plan. It stops tasks that left the plan, and makes systemd read changed
    units. Units of another release than the release of the present run find this run, too. It examines what systemd has
    loaded, not what a deployment changed. So it also finishes an interrupted deployment. It never starts or restarts a
    task.
  - An option of another state is refused.
author: psfleet (@psfleet)
options:
  tasks:
    description: The tasks, each with its job and index.
    type: list
    elements: dict
    required: true
  others:
    description: Include the host's other tasks.
    type: bool
    default: false
  state:
    description:
      - V(queried) changes nothing. V(started) starts the tasks, and waits until each task's server listens; the evaluator
        has no server, so V(started) waits until it has ended. V(stopped) stops the tasks, and waits for their end.
      - V(reloaded) stops all tasks except O(tasks), which are the tasks that stay in the plan.
    type: str
    choices:
      - queried
      - started
      - stopped
      - reloaded
    default: queried
  patience:
    description: Seconds to wait first for another command that holds V(host_lease).
    type: float
    default: 0
  stopped:
    description: >-
      For each task that was stopped before, how often systemd had restarted it; as the V(stopped) that earlier calls
      returned, because systemd forgets it.
    type: dict
    default: {}
  traffic:
    description: Whether to return the bytes that each task received and sent.
    type: bool
    default: false
  fence:
    description: Whether to return why the host's fence is not in force.
    type: bool
    default: false
  starting:
    description: Tasks of the plan; the answer says why they could not start.
    type: list
    elements: dict
    default: []
  data_directories:
    description: The folders from which the tasks in V(starting) read data.
    type: list
    elements: str
    default: []
  data_carried:
    description: Whether deploy.yml carries the data.
    type: bool
    default: false
  tables:
    description: The tables of a model that the tasks in V(starting) will hold, as in V(HostNeeds) of host_checks.py.
    type: dict
    default: {}
  metrics_directory:
    description: The directory from which node_exporter reads the metrics; empty for none.
    type: str
    default: ''
  metrics_record:
    description: The file that has the path of the metrics' directory. V(state=reloaded) requires it.
    type: path
  details:
    description: Whether to return further details, for people.
    type: bool
    default: false
  run_id:
    description: A run; the answer says how the tasks ended in it, even if another run followed.
    type: str
    default: ''
  plan_hash:
    description: Hash of today's plan. If it is deployed, V(deployed) has only the hash.
    type: str
    default: ''
  paths:
    description: The fact V(cluster_paths).
    type: dict
    required: true
attributes:
  check_mode:
    support: full
    description: It changes nothing, and says what it would change.
"""

EXAMPLES = r"""
- name: Start the first worker
  psfleet.cluster.trainer_tasks:
    tasks: [{job: worker, index: 0}]
    state: started
    paths: "{{ cluster_paths }}"

- name: See how all tasks of the host are
  psfleet.cluster.trainer_tasks:
    tasks: []
    others: true
    paths: "{{ cluster_paths }}"

- name: Have systemd read what a deployment has written
  psfleet.cluster.trainer_tasks:
    tasks: "{{ cluster_tasks[inventory_hostname] | psfleet.cluster.known_tasks }}"
    state: reloaded
    metrics_record: /etc/psfleet/metrics_directory
    paths: "{{ cluster_paths }}"
"""

RETURN = r"""
deployed:
  returned: unless reloaded
  type: dict
  description: The plan that deploy.yml left on this host; only its `hash` if that is O(plan_hash). Empty without a plan, and
    without O(plan_hash).
deployed_by:
  returned: unless reloaded
  type: str
  description: Who deployed here last, empty if unknown.
tensorflow:
  returned: unless reloaded
  type: str
  description: The version of TensorFlow in use, empty for none.
release:
  returned: unless reloaded
  type: str
  description: The trainer's release in use, empty for none.
environment:
  returned: unless reloaded
  type: str
  description: The hash of the environment in use, empty for none.
program_environments:
  returned: unless reloaded
  type: dict
  description: For the key of each program's requirements, the hash of the program's environment.
programs:
  returned: unless reloaded
  type: list
  description: The releases of programs on this host.
  elements: str
lacks_cuda:
  returned: unless reloaded
  type: bool
  description: Whether the TensorFlow that tasks use was built without CUDA.
unfenced:
  returned: unless reloaded
  type: str
  description: Why the host's fence is not in force; empty if it is, and unless O(fence) is true.
checks:
  returned: unless reloaded
  type: list
  description: The failed checks among `ports`, `data`, `memory` and `metrics`, each with `name`, `state`, `found`, `remedy` and
    `task`.
  elements: dict
holds_run:
  returned: unless reloaded
  type: bool
  description: Whether this host has files of the run O(run_id).
tasks:
  returned: unless reloaded
  type: list
  description:
    - Each task's `name`, `job`, `index`, `state`, `exit_code`, `restarts`, `run_id`, `phase`, `begun`
      (who began the run and when, empty if unknown) and `reason`. The exit code is null if systemd
      has forgotten it and the task recorded none.
    - The field `ended_by` is `psfleet` if a playbook ended the task, `host` if its host went down and was booted since,
      `itself` otherwise, and empty while the task is alive. A task that a playbook ended has not `failed`, whatever its
      exit code is.
    - With `traffic`, also `bytes_received` and `bytes_sent`, over all restarts since the task's own settings
      last changed; null if they are not counted.
    - With `traffic` or `details`, also `refused`, the connections to the task's port that the fence
      refused since a run's tasks were last started on this host; null if they are not counted.
    - With `details`, also `result`, `since_seconds` (how long it has been in this state), `finished` (the reason that it
      recorded), `memory_bytes`, `cpu_seconds`, `log`, `log_end`, `last_step`, `last_step_age_seconds`,
      `sign_of_life_age_seconds` (since systemd's watchdog last heard from it; null if it never did) and `progress`.
  elements: dict
looked:
  returned: unless reloaded
  type: float
  description: The moment of the query, on the host's own clock, for M(psfleet.cluster.host_lease).
stopped:
  returned: unless reloaded
  type: dict
  description: For each task that was stopped, by this call or before (O(stopped)), how often systemd had restarted it.
departed:
  returned: if reloaded
  type: list
  description: The loaded units of tasks that left the plan.
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host.task_units import SystemdError
from ..module_utils.module import make_module_with_states
from ..module_utils.tasks.reloaded_units import reload_units
from ..module_utils.tasks.trainer_tasks import ARGUMENTS as OF_TASKS
from ..module_utils.tasks.trainer_tasks import tasks_answer

ARGUMENTS: dict[str, Any] = {
    **OF_TASKS,
    "state": {"choices": ["queried", "started", "stopped", "reloaded"], "default": "queried"},
    "metrics_record": {"type": "path"},
}
OF_QUERY = OF_TASKS.keys() - {"tasks", "state", "paths"}
REQUIRED = {"reloaded": ("metrics_record",)}
OPTIONAL = {
    **dict.fromkeys(("queried", "started", "stopped"), OF_QUERY),
    "reloaded": {"metrics_directory"},
}


def run(module: AnsibleModule) -> None:
    """Start, stop or describe the tasks, or reload their units, as `state` says; exit with the answer."""
    values, check_mode = module.params, module.check_mode
    reloads = values["state"] == "reloaded"
    problems = (OSError, ValueError) if reloads else (SystemdError,)
    try:
        answer = (reload_units if reloads else tasks_answer)(values, check_mode=check_mode)
    except problems as error:
        module.fail_json(msg=str(error))
    module.exit_json(**answer)


def main() -> None:
    """Run the module with the arguments from Ansible; exit with its answer, or with a failure."""
    run(make_module_with_states(ARGUMENTS, REQUIRED, OPTIONAL))


if __name__ == "__main__":
    main()
