"""Start, stop and describe the trainer tasks of one host, in one round trip."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

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
  job:
    description: Take only the tasks of this job.
    type: str
  state:
    description:
      - C(queried) only looks. C(started) starts and does not wait.
      - C(ready) waits until the server of each task that is starting listens. C(stopped) waits for the end.
    type: str
    choices: [queried, started, ready, stopped]
    default: queried
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
"""

RETURN = r"""
deployed:
  description: The plan that deploy.yml left on this host, or an empty object.
  returned: always
  type: dict
tasks:
  description: Each task's name, job, index, state, exit code, restarts, run id, phase and reason.
  returned: always
  type: list
"""

PROPERTIES = ("ActiveState", "SubState", "Result", "ExecMainStatus", "NRestarts", "MainPID", "LoadState")
ALIVE = {"active", "activating", "reloading", "deactivating"}
LAST_LINES = 5


def unit_name(job: str, index: int) -> str:
    """Return the systemd unit of a task."""
    return f"psfleet-{job}@{index}.service"


def parse_show(text: str) -> list[dict[str, str]]:
    """Parse what `systemctl show` prints for several units: blocks of KEY=value, divided by empty lines."""
    return [
        dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        for block in text.strip().split("\n\n")
        if block.strip()
    ]


def last_failure(events: Path) -> str:
    """Return class and reason of the last `failed` record, or an empty string where there is none."""
    try:
        lines = events.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in reversed(lines):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and record.get("event") == "failed":
            return f"{record.get('class')}: {record.get('reason')}"
    return ""


def last_lines(log: Path) -> str:
    """Return the last lines that a task printed, or an empty string."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join(line for line in lines[-LAST_LINES:] if line.strip())


def run_id_of(configuration: Path, name: str) -> str:
    """Return the run that a task was last prepared for, read from its environment file."""
    try:
        lines = (configuration / "run" / f"{name}.env").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return values.get("PSFLEET_RUN_ID", "").strip('"')


def read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file, empty where there is none."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


class Tasks:
    """The tasks of this host, seen through systemd."""

    def __init__(self, module: AnsibleModule) -> None:
        """Take the tasks and directories from the module's parameters."""
        parameters = module.params
        self.configuration = Path(parameters["configuration_directory"])
        self.runs = Path(parameters["state_directory"]) / "runs"
        self.logs = Path(parameters["log_directory"])
        self.tasks = [
            (str(task["job"]), int(task["index"]))
            for task in parameters["tasks"]
            if parameters["job"] in (None, task["job"])
        ]
        self.units = [unit_name(job, index) for job, index in self.tasks]

    def describe(self) -> list[dict[str, Any]]:
        """Return the state of each task."""
        if not self.units:
            return []
        shown = parse_show(systemctl("show", f"--property={','.join(PROPERTIES)}", *self.units).stdout)
        return [self._describe(*task, values) for task, values in zip(self.tasks, shown, strict=True)]

    def _describe(self, job: str, index: int, values: dict[str, str]) -> dict[str, Any]:
        run_id = run_id_of(self.configuration, f"{job}-{index}")
        failed = values.get("ActiveState") == "failed"
        reason = ""
        if values.get("LoadState") != "loaded":
            failed, reason = True, f"its unit is {values.get('LoadState')}"
        elif failed:
            name = f"{job}{index}"
            reason = last_failure(self.runs / run_id / "events" / f"{name}.jsonl")
            reason = reason or last_lines(self.logs / run_id / f"{name}.out") or values.get("Result", "")
        return {
            "name": f"{job}{index}",
            "job": job,
            "index": index,
            "state": f"{values.get('ActiveState')} ({values.get('SubState')})",
            "alive": values.get("ActiveState") in ALIVE,
            "failed": failed,
            "exit_code": int(values.get("ExecMainStatus") or 0),
            "restarts": int(values.get("NRestarts") or 0),
            "pid": int(values.get("MainPID") or 0),
            "run_id": run_id,
            "phase": str(read_object(self.runs / run_id / "progress.json").get("phase", "")),
            "reason": reason,
        }

    def start(self) -> None:
        """Start what is not alive, forgetting the failures of earlier runs."""
        idle = self._units(alive=False)
        if idle:
            systemctl("reset-failed", *idle)
            systemctl("start", "--no-block", *idle)

    def await_ready(self) -> None:
        """Wait until each task that is starting listens (READY=1) or has failed."""
        starting = self._units(alive=True)
        if starting:
            # Starting a unit whose start is under way joins that job.
            systemctl("start", *starting)

    def stop(self) -> None:
        """Stop every task and wait until its process has gone."""
        if self.units:
            systemctl("stop", *self.units)

    def _units(self, *, alive: bool) -> list[str]:
        return [
            unit for unit, task in zip(self.units, self.describe(), strict=True) if task["alive"] is alive
        ]


def systemctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemctl; what became of the units is read afterwards, from their states."""
    command: Sequence[str] = ["systemctl", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "tasks": {"type": "list", "elements": "dict", "required": True},
            "job": {"type": "str"},
            "state": {
                "type": "str",
                "choices": ["queried", "started", "ready", "stopped"],
                "default": "queried",
            },
            "configuration_directory": {"type": "path", "default": "/etc/psfleet"},
            "state_directory": {"type": "path", "default": "/var/lib/psfleet"},
            "log_directory": {"type": "path", "default": "/var/log/psfleet"},
        },
        supports_check_mode=True,
    )
    tasks = Tasks(module)
    wanted = module.params["state"]
    before = tasks.describe()
    actions = {"started": tasks.start, "ready": tasks.await_ready, "stopped": tasks.stop}
    if not module.check_mode and wanted in actions:
        actions[wanted]()
    alive = [task["alive"] for task in before]
    changed = (wanted == "started" and not all(alive)) or (wanted == "stopped" and any(alive))
    module.exit_json(
        changed=changed, deployed=read_object(tasks.configuration / "plan.json"), tasks=tasks.describe()
    )


if __name__ == "__main__":
    main()
