"""Start, stop and describe the trainer tasks of one host, in one round trip."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.deployment import MOST_BYTES_OF_PLAN, installed_tensorflow, lacks_cuda
from ansible.module_utils.task_details import DETAIL_PROPERTIES, task_details
from ansible.module_utils.task_traces import last_failure, last_lines, read_object, run_file, run_id_of
from ansible.module_utils.task_units import is_alive, parse_show, task_of, unit_name
from ansible.module_utils.unit_traffic import TRAFFIC_PROPERTIES, unit_traffic

DOCUMENTATION = r"""
module: trainer_tasks
short_description: Start, stop and describe the trainer tasks of this host
description:
  - A task that fails to start does not fail the module. Its state and the reason that it left are returned,
    so that the run can be ended everywhere before the playbook fails.
options:
  tasks:
    description: The tasks of this host, each with C(job) and C(index).
    type: list
    elements: dict
    required: true
  others:
    description:
      - Take also the tasks that this host knows beside these, from units that systemd has loaded and from
        what train.yml prepared. They may be of an inventory of the past.
    type: bool
    default: false
  state:
    description:
      - C(queried) only looks. C(started) starts and does not wait.
      - C(ready) waits until the server of each task that is starting listens; of the evaluator, which has
        none, until it has ended. C(stopped) waits for the end.
    type: str
    choices: [queried, started, ready, stopped]
    default: queried
  stopped:
    description: Names of tasks that were stopped before, of which C(ended_by) is to say so.
    type: list
    elements: str
    default: []
  traffic:
    description: Tell also how many bytes each task has received and sent.
    type: bool
    default: false
  details:
    description: Tell also what people want to know of each task, such as its last step.
    type: bool
    default: false
  install_directory:
    description: Where deploy.yml left the environment.
    type: path
    default: /opt/psfleet
  configuration_directory:
    description: Where deploy.yml left the plan.
    type: path
    default: /etc/psfleet
  state_directory:
    description: Where the tasks keep their runs.
    type: path
    default: /var/lib/psfleet
  log_directory:
    description: Where the tasks' output is.
    type: path
    default: /var/log/psfleet
author: psfleet
"""

EXAMPLES = r"""
- name: Start the parameter servers
  trainer_tasks:
    tasks: [{job: ps, index: 0}]
    state: started

- name: Look at every task of this host
  trainer_tasks:
    tasks: []
    others: true
    details: true
"""

RETURN = r"""
deployed:
  description: The plan that deploy.yml left on this host, or an empty object.
  returned: always
  type: dict
tensorflow:
  description: The version of TensorFlow in use on this host, empty where no environment is whole.
  returned: always
  type: str
lacks_cuda:
  description: Whether that TensorFlow is the one that was built without CUDA.
  returned: always
  type: bool
tasks:
  description:
    - Each task's C(name), C(job), C(index), C(state), C(exit_code), C(restarts), C(run_id), C(phase) and
      C(reason).
    - C(ended_by) is C(psfleet) where a playbook ended it, C(itself) where not, empty while it is alive. What
      a playbook ended has not C(failed), whatever its exit code.
    - C(bytes_received) and C(bytes_sent) in this run, over all restarts, where C(traffic) asks for them; null
      where systemd did not count.
    - Where C(details) asks for it, also C(result), C(since_seconds) in this state, C(finished) (the reason
      that it recorded), C(memory_bytes), C(cpu_seconds), C(log), C(log_end), C(last_step),
      C(last_step_age_seconds) and C(progress).
  returned: always
  type: list
stopped:
  description: Names of the tasks that ran and were stopped now.
  returned: always
  type: list
"""

PROPERTIES = (
    "ActiveState",
    "SubState",
    "Result",
    "ExecMainStatus",
    "NRestarts",
    "MainPID",
    "LoadState",
    "Job",
    *TRAFFIC_PROPERTIES,
    *DETAIL_PROPERTIES,
)
WAITING_TO_RESTART = "auto-restart"
# Where systemd knows more than the process could tell, in words.
RESULTS = {
    "oom-kill": "the kernel has ended it, for the memory of its host was used up",
    "timeout": "systemd has ended it, for it took longer than its unit allows",
    "watchdog": "systemd has ended it, for it gave no sign of life",
}


def why_ended(result: str, lines: str) -> str:
    """Return what is known of a process that told no reason: systemd's `result`, and its last `lines`."""
    told = RESULTS.get(result) or ("" if lines else result)
    return "\n".join(part for part in (told, lines) if part)


class Tasks:
    """The tasks of this host, seen through systemd."""

    def __init__(self, module: AnsibleModule) -> None:
        """Take the tasks and directories from the module's parameters."""
        parameters = module.params
        self.configuration = Path(parameters["configuration_directory"])
        self.runs = Path(parameters["state_directory"]) / "runs"
        self.logs = Path(parameters["log_directory"])
        self.ended = set(parameters["stopped"])
        self.traffic = bool(parameters["traffic"]) and not module.check_mode
        self.details = bool(parameters["details"])
        self.tasks = [(str(task["job"]), int(task["index"])) for task in parameters["tasks"]]
        if parameters["others"]:
            self.tasks += sorted(self._known() - set(self.tasks))
        self.units = [unit_name(job, index) for job, index in self.tasks]

    def _known(self) -> set[tuple[str, int]]:
        """Return the tasks that run or failed, and those that train.yml prepared."""
        listed = systemctl("list-units", "--all", "--plain", "--no-legend", "psfleet-*@*.service").stdout
        units = [line.split()[0] for line in listed.splitlines() if line.strip()]
        prepared = [path.name for path in (self.configuration / "run").glob("*.env")]
        return {task for name in (*units, *prepared) if (task := task_of(name))}

    def describe(self) -> list[dict[str, Any]]:
        """Return the state of each task."""
        if not self.units:
            return []
        shown = dict(zip(self.units, self._show(), strict=True))
        traffic = unit_traffic(shown, self._began()) if self.traffic else {}
        return [
            self._describe(job, index, shown[unit], traffic.get(unit, (None, None)))
            for unit, (job, index) in zip(self.units, self.tasks, strict=True)
        ]

    def _began(self) -> dict[str, float]:
        """Return when the run of each unit was prepared, as Unix time; no entry where none was."""
        return {
            unit: file.stat().st_mtime
            for unit, (job, index) in zip(self.units, self.tasks, strict=True)
            if (file := run_file(self.configuration, job, index)).exists()
        }

    def _show(self) -> list[dict[str, str]]:
        if not self.units:
            return []
        printed = systemctl("show", f"--property={','.join(PROPERTIES)}", *self.units).stdout
        shown: list[dict[str, str]] = parse_show(printed)
        return shown

    def _describe(
        self, job: str, index: int, values: dict[str, str], traffic: tuple[int | None, int | None]
    ) -> dict[str, Any]:
        name = f"{job}{index}"
        run_id = run_id_of(run_file(self.configuration, job, index))
        alive = is_alive(values)
        was_stopped = name in self.ended
        failed = not alive and values.get("Result", "success") != "success" and not was_stopped
        events, log = self.runs / run_id / "events" / f"{name}.jsonl", self.logs / run_id / f"{name}.out"
        progress = read_object(self.runs / run_id / "progress.json")
        reason = ""
        if values.get("LoadState") != "loaded":
            failed, reason = True, f"its unit is {values.get('LoadState')}"
        elif failed:
            reason = last_failure(events) or why_ended(values.get("Result", ""), last_lines(log))
        return {
            "name": name,
            "job": job,
            "index": index,
            "state": f"{values.get('ActiveState')} ({values.get('SubState')})",
            "alive": alive,
            "failed": failed,
            "ended_by": "" if alive else "psfleet" if was_stopped else "itself",
            "exit_code": int(values.get("ExecMainStatus") or 0),
            "restarts": int(values.get("NRestarts") or 0),
            "pid": int(values.get("MainPID") or 0),
            "run_id": run_id,
            "phase": str(progress.get("phase", "")),
            "reason": reason,
            "bytes_received": traffic[0],
            "bytes_sent": traffic[1],
            **(task_details(values, events, log) | {"progress": progress} if self.details else {}),
        }

    def start(self) -> None:
        """Start what is not alive, forgetting the failures of earlier runs."""
        idle = self._units(alive=False)
        if idle:
            systemctl("reset-failed", *idle)
            systemctl("start", "--no-block", *idle)

    def await_ready(self) -> None:
        """Wait until each task that is starting listens (READY=1), has failed or, if it is oneshot, ended."""
        starting = self._units(alive=True)
        if starting:
            # Starting a unit whose start is under way joins that job.
            systemctl("start", *starting)

    def stop(self) -> None:
        """Stop every task and wait until its process has gone."""
        if self.units:
            # One that has just failed and waits for its restart is not ended by this, it has ended already.
            self.ended |= {
                f"{job}{index}"
                for (job, index), values in zip(self.tasks, self._show(), strict=True)
                if is_alive(values) and values.get("SubState") != WAITING_TO_RESTART
            }
            systemctl("stop", *self.units)

    def alive(self) -> list[bool]:
        """Return whether each task is alive."""
        return [is_alive(values) for values in self._show()]

    def _units(self, *, alive: bool) -> list[str]:
        return [unit for unit, found in zip(self.units, self.alive(), strict=True) if found is alive]


def systemctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemctl; what became of the units is read afterwards, from their states."""
    return run(["systemctl", *arguments])


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command and return what it printed; it may fail."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "tasks": {"type": "list", "elements": "dict", "required": True},
            "others": {"type": "bool", "default": False},
            "state": {
                "type": "str",
                "choices": ["queried", "started", "ready", "stopped"],
                "default": "queried",
            },
            "stopped": {"type": "list", "elements": "str", "default": []},
            "traffic": {"type": "bool", "default": False},
            "details": {"type": "bool", "default": False},
            "install_directory": {"type": "path", "default": "/opt/psfleet"},
            "configuration_directory": {"type": "path", "default": "/etc/psfleet"},
            "state_directory": {"type": "path", "default": "/var/lib/psfleet"},
            "log_directory": {"type": "path", "default": "/var/log/psfleet"},
        },
        supports_check_mode=True,
    )
    tasks = Tasks(module)
    wanted = module.params["state"]
    alive = tasks.alive()
    actions = {"started": tasks.start, "ready": tasks.await_ready, "stopped": tasks.stop}
    if not module.check_mode and wanted in actions:
        actions[wanted]()
    changed = (wanted == "started" and not all(alive)) or (wanted == "stopped" and any(alive))
    module.exit_json(
        changed=changed,
        deployed=read_object(tasks.configuration / "plan.json", most=MOST_BYTES_OF_PLAN),
        tensorflow=installed_tensorflow(Path(module.params["install_directory"])),
        lacks_cuda=lacks_cuda(Path(module.params["install_directory"])),
        tasks=tasks.describe(),
        stopped=sorted(tasks.ended),
    )


if __name__ == "__main__":
    main()
