"""Starts, stops or describes the tasks of one host, in one round trip.

A task that fails to start does not make the module fail. Its state and its reason are returned, so that the
run can be ended everywhere before the playbook fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..checks.port_checks import task_ports
from ..checks.start_checks import failed_checks
from ..content_directory import HASH_DIGITS
from ..deployment import (
    MOST_BYTES_OF_PLAN,
    deployed_plan,
    installed_tensorflow,
    lacks_cuda,
    linked_hash,
    program_environments,
)
from ..disk_space import LEAST_ROOM, lacking_space
from ..host.task_traces import (
    RUN_ID,
    exit_code,
    is_occupied,
    last_lines_of,
    last_step_figures,
    read_object,
    run_file,
    run_id_of,
    why_ended,
    why_failed,
    written_exit_code,
)
from ..host.task_units import (
    BOOTED,
    RUN_JOBS,
    SystemdError,
    is_alive,
    parse_list,
    show_units,
    systemctl,
    systemctl_strictly,
    task_name,
    task_of,
    unit_name,
)
from ..host.wording import cut
from ..lease import FILE, time_of_reading
from ..network.fence_state import fence_problem, refused_connections, reset_refused_counters
from ..people import begun_by, deployed_by
from ..saved_places import TASKS_TMP
from .boots import boot_file, rebooted_since
from .run_links import RunLinks
from .task_details import DETAIL_PROPERTIES, task_details
from .unit_traffic import TRAFFIC_PROPERTIES, unit_traffic

# The most characters of a phase, which a task writes; the controller accepts no longer text.
MOST_OF_PHASE = 100
# The arguments of the module `trainer_tasks`. LOOK has those that `host_facts` takes, too.
ARGUMENTS: dict[str, Any] = {
    "tasks": {"type": "list", "elements": "dict", "required": True},
    "others": {"type": "bool", "default": False},
    "state": {"choices": ["queried", "started", "stopped"], "default": "queried"},
    "patience": {"type": "float", "default": 0},
    "stopped": {"type": "dict", "default": {}},
    "traffic": {"type": "bool", "default": False},
    "fence": {"type": "bool", "default": False},
    "starting": {"type": "list", "elements": "dict", "default": []},
    "data_directories": {"type": "list", "elements": "str", "default": []},
    "data_carried": {"type": "bool", "default": False},
    "tables": {"type": "dict", "default": {}},
    "metrics_directory": {"default": ""},
    "details": {"type": "bool", "default": False},
    "run_id": {"default": ""},
    "plan_hash": {"default": ""},
    "paths": {"type": "dict", "required": True},
}
LOOK = {
    name: ARGUMENTS[name]
    for name in (
        "tasks",
        "others",
        "patience",
        "starting",
        "tables",
        "metrics_directory",
        "plan_hash",
        "paths",
    )
}
DEFAULTS = {name: argument["default"] for name, argument in ARGUMENTS.items() if "default" in argument}
STATE_PROPERTIES = (
    *("ActiveState", "SubState", "Result", "ExecMainPID", "ExecMainStatus", "NRestarts"),
    *("LoadState", "Job"),
)
PROPERTIES = ("MainPID", *STATE_PROPERTIES, *TRAFFIC_PROPERTIES, *DETAIL_PROPERTIES)
# As in the units' SuccessExitStatus=; None if the code is unknown.
GOOD_ENDS = (None, 0, 143)
# systemd sent SIGTERM, or had no time for it.
ENDS_BY_HOST = (None, 143)


class Tasks:
    """The tasks of this host that the arguments of the module `trainer_tasks` name, seen through systemd.

    - `units`: {unit: (job, index)} of these tasks.
    - `ended`: {task that a playbook stopped: how often systemd had restarted it}.
    - `requested`: the argument `run_id` if it is valid, else "". `past`: the same if this host has a
      directory of that run, else "".
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        paths = {name: Path(path) for name, path in parameters["paths"].items()}
        self.configuration, self.logs = paths["configuration_directory"], paths["log_directory"]
        self.runs = paths["state_directory"] / "runs"
        self.places = (self.runs, self.runs / TASKS_TMP)
        self.links = RunLinks(parameters["paths"])
        self.ended: dict[str, int] = dict(parameters["stopped"])
        self.details = bool(parameters["details"])
        self.requested = run_id if RUN_ID.fullmatch(run_id := str(parameters["run_id"])) else ""
        self.past = self.requested if self.requested and (self.runs / self.requested).is_dir() else ""
        tasks = [(str(task["job"]), int(task["index"])) for task in parameters["tasks"]]
        if parameters["others"]:
            tasks += sorted(self._tasks_on_host() - set(tasks))
        self.units = {unit_name(job, index): (job, index) for job, index in tasks}

    def _tasks_on_host(self) -> set[tuple[str, int]]:
        prepared = [path.name for path in (self.configuration / "run").glob("*.env")]
        query = ("list-units", "--all", "--plain", "--no-legend", "psfleet-*@*.service")
        listed = systemctl_strictly(*query) if BOOTED.is_dir() else ""
        return {task for name in (*parse_list(listed), *prepared) if (task := task_of(name))}

    def read_properties(self) -> dict[str, dict[str, str]]:
        """Return {unit: its PROPERTIES, as `systemctl show` prints them}. Raises SystemdError."""
        if not self.units:
            return {}
        return dict(zip(self.units, show_units(list(self.units), PROPERTIES), strict=True))

    def read_tasks(self, *, traffic: bool) -> list[dict[str, Any]]:
        """Return an object for each task, with the fields of `tasks` in RETURN of the module `trainer_tasks`.

        Without `traffic`, the bytes received and sent are None. Raises SystemdError.
        """
        shown = self.read_properties()
        files = {unit: run_file(self.configuration, *task) for unit, task in self.units.items()}
        began = {unit: file.stat().st_mtime for unit, file in files.items() if file.exists()}
        counted = unit_traffic(shown, began) if traffic else {}
        refused = self._refused_by_unit() if traffic or self.details else {}
        tasks = []
        for unit, values in shown.items():
            of_run, run_id, moved = values, run_id_of(files[unit]), counted.get(unit, (None, None))
            if self.past not in {"", run_id} and not is_alive(values):
                # systemd's state belongs to the later run.
                of_run, run_id, moved = self._properties_after_end(unit, self.past), self.past, (None, None)
            elif self._is_lost_by_reboot(unit, values):
                of_run = self._properties_after_end(unit, run_id, rebooted=True)
            traffic_of = dict(zip(("bytes_received", "bytes_sent"), moved, strict=True))
            traffic_of["refused"] = refused.get(unit)
            tasks.append(self._read_task(*self.units[unit], of_run, run_id) | traffic_of)
        return tasks

    def _refused_by_unit(self) -> dict[str, int]:
        """Return {unit: number of refused connections to its port}, for the units that the fence counts."""
        plan = read_object(self.configuration / "plan.json", most=MOST_BYTES_OF_PLAN)
        ports, counts = task_ports(plan.get("tasks", ())), refused_connections()
        return {unit_name(of.job, of.index): counts[of.port] for of in ports if of.port in counts}

    def _is_lost_by_reboot(self, unit: str, values: Mapping[str, str]) -> bool:
        """Return whether the task started before the last boot, and systemd knows nothing of it.

        `values` are the properties of its unit. A task that is alive, or has ended since the boot, gives
        False.
        """
        known = is_alive(values) or int(values.get("ExecMainPID") or 0)
        return not known and rebooted_since(boot_file(self.configuration, *self.units[unit]))

    def _properties_after_end(self, unit: str, run_id: str, *, rebooted: bool = False) -> dict[str, str]:
        """Return a task's properties after its end in a run, in the form that systemd prints.

        Its `Result` follows from the exit code that the task recorded: "success" or "exit-code"; but "reboot"
        if the host has `rebooted`, and the code is unknown or that of SIGTERM.
        """
        job, index = self.units[unit]
        code = written_exit_code(self.runs / run_id, task_name(job, index))
        ended = {"LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead"}
        if rebooted and code in ENDS_BY_HOST:
            return {**ended, "Result": "reboot"}
        return {**ended, "Result": "success" if code in GOOD_ENDS else "exit-code"}

    def _read_task(self, job: str, index: int, values: Mapping[str, str], run_id: str) -> dict[str, Any]:
        name = task_name(job, index)
        alive = is_alive(values)
        was_stopped = name in self.ended
        result = values.get("Result", "success")
        failed = not alive and result != "success" and not was_stopped
        went_down = failed and result == "reboot"
        events, log = self.runs / run_id / "events" / f"{name}.jsonl", self.logs / run_id / f"{name}.out"
        progress = read_object(self.runs / run_id / "progress.json")
        reason = ""
        if values.get("LoadState") != "loaded":
            failed, reason = True, f"its unit is {values.get('LoadState')}"
        elif went_down:
            step = last_step_figures(events).get("global_step")
            reason = "its host went down, and was booted since"
            reason += "" if step is None else f"; the last step that it recorded is {int(step)}"
        elif failed:
            lines = last_lines_of(log)
            reason = why_failed(events, name, lines) or why_ended(name, result, lines)
            if lacks := lacking_space((self.runs / run_id, LEAST_ROOM)):
                reason = f"{reason}\nNo space left on its host: {lacks}".strip()
        ended_by = "host" if went_down else "itself"
        return {
            "name": name,
            "job": job,
            "index": index,
            "state": f"{values.get('ActiveState')} ({values.get('SubState')})",
            "alive": alive,
            "failed": failed,
            "ended_by": "" if alive else "psfleet" if was_stopped else ended_by,
            "exit_code": exit_code(values, self.runs / run_id, name),
            "restarts": max(int(values.get("NRestarts") or 0), self.ended.get(name, 0)),
            "pid": int(values.get("MainPID") or 0),
            "run_id": run_id,
            "begun": begun_by(run_file(self.configuration, job, index), run_id),
            "phase": cut(str(progress.get("phase", "")), MOST_OF_PHASE),
            "reason": reason,
            **(task_details(values, events, log) | {"progress": progress} if self.details else {}),
        }

    def start(self) -> None:
        """Start the tasks that are not alive, after clearing the failures of earlier runs, and wait for them.

        After that, each task listens (READY=1), has failed or, if its unit is oneshot, has ended; a failed
        start raises nothing. Raises SystemdError, and starts nothing, if the tasks do not belong to one run.
        """
        idle = [unit for unit, values in self.read_properties().items() if not is_alive(values)]
        if idle:
            self.links.point_to(self._run_to_start())
            systemctl("reset-failed", *idle)
            if any(self.units[unit][0] in RUN_JOBS for unit in idle):
                reset_refused_counters()
        if of_run := [unit for unit, (job, _) in self.units.items() if job in RUN_JOBS]:
            # Until a task has ended or is stopped, it starts again when its host is booted.
            systemctl("--no-reload", "enable", *of_run)
        systemctl("start", *self.units)

    def _run_to_start(self) -> str:
        """Return the id of the run to which all tasks belong.

        Raises SystemdError if they belong to several runs, or if a task belongs to none.
        """
        runs_of_tasks = {
            task_name(job, index): run_id_of(run_file(self.configuration, job, index))
            for job, index in self.units.values()
        }
        if len(runs := set(runs_of_tasks.values())) != 1 or "" in runs:
            each = ", ".join(f"{name} of {run_id or 'none'}" for name, run_id in runs_of_tasks.items())
            raise SystemdError(
                f"the tasks to be started do not belong to one run: {each}. Nothing was started: "
                "`ansible-playbook train.yml` assigns them one"
            )
        return runs.pop()

    def stop(self) -> None:
        """Stop every task, wait until its process is gone, and add the tasks that were alive to `ended`.

        A task that has failed and waits for its restart is not added, because it ended by itself. Raises
        SystemdError if a task remains alive.
        """
        lost = set()
        for unit, values in self.read_properties().items():
            if self._is_lost_by_reboot(unit, values):
                lost.add(unit)
            # A task that has just failed and waits for its restart has already ended by itself.
            if is_alive(values) and values.get("SubState") != "auto-restart":
                job, index = self.units[unit]
                self.ended[task_name(job, index)] = int(values.get("NRestarts") or 0)
        try:
            systemctl_strictly("stop", *self.units)
        except SystemdError as error:  # systemd also complains about units that it has forgotten
            names = [task_name(job, index) for job, index in self._alive()]
            if names:
                raise SystemdError(f"{', '.join(names)} could not be stopped: {error}") from error
        # Tasks that were running have disabled their units themselves, when they ended.
        systemctl("--no-reload", "disable", *self.units)
        # A reboot does not end a task that has ended by now.
        for unit in self.units.keys() - lost:
            boot_file(self.configuration, *self.units[unit]).unlink(missing_ok=True)

    def _alive(self) -> list[tuple[str, int]]:
        return [self.units[unit] for unit, values in self.read_properties().items() if is_alive(values)]


def tasks_answer(values: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Return the answer of the module `trainer_tasks`; first start or stop the tasks if `state` says so.

    `values` are the module's arguments; absent ones have their defaults, so without `state` nothing changes.
    RETURN of the module describes the answer. Raises SystemdError.
    """
    values = {**DEFAULTS, **values}
    wanted, install = values["state"], Path(values["paths"]["install_directory"])
    patience = 0.0 if check_mode else values["patience"]
    deployed = Path(values["paths"]["configuration_directory"]).is_dir()
    looked = time_of_reading(FILE, patience, deployed=deployed and not check_mode)
    tasks = Tasks(values)
    alive = [is_alive(properties) for properties in tasks.read_properties().values()]
    actions = {"started": tasks.start, "stopped": tasks.stop}
    if not check_mode and wanted in actions:
        actions[wanted]()
    of_tasks = tasks.read_tasks(traffic=values["traffic"] and not check_mode)
    return {
        "changed": (wanted == "started" and not all(alive)) or (wanted == "stopped" and any(alive)),
        "deployed": deployed_plan(tasks.configuration / "plan.json", values["plan_hash"]),
        "deployed_by": deployed_by(tasks.configuration),
        "tensorflow": installed_tensorflow(install),
        "release": linked_hash(install, "current"),
        "environment": linked_hash(install, "environment"),
        "program_environments": program_environments(install),
        "programs": sorted(path.name for path in (install / "programs").glob("[0-9a-f]" * HASH_DIGITS)),
        "lacks_cuda": lacks_cuda(install),
        "checks": failed_checks(values),
        "holds_run": bool(tasks.requested)
        and any(is_occupied(place / tasks.requested) for place in tasks.places),
        "unfenced": fence_problem(tasks.configuration) if values["fence"] else "",
        "tasks": of_tasks,
        "looked": looked,
        "stopped": tasks.ended,
    }
