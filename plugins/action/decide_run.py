"""Decides for the whole cluster which run starts, resumes, is watched again or is stopped, or refuses it."""

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible.utils.vars import load_extra_vars

from psfleet.evidence.runs_directory import newest_first
from psfleet.inventory.variables import PREFIX
from psfleet.run.folder import (
    begun_run,
    begun_settings,
    collected_whole,
    described_run,
    make_folder,
    names_of_new,
    state_of,
    tasks_of_run,
)
from psfleet.run.person import beginning
from psfleet.run.settings import can_resize, resumed_settings
from psfleet.run.start import Folder, RefusedError, decide, going_on, stopped_tasks, unstopped
from trainer.contract.json_files import read_object
from trainer.contract.plan import ClusterPlan

from ..plugin_utils.actions import ControllerAction


class ActionModule(ControllerAction):
    """Arguments: `state`, `run_id`, `runs_directory`, and `found` (host -> result of trainer_tasks).

    Returns `run` with `id`, `folder`, `settings`, `tasks` and `lead`, or fails.

    With the `state` started, a `run_id` of "" is a new run. The run has its `action`; `collected` are the
    runs of this cluster that hosts may delete, the newest first.

    With `stopped`, "" is any run that is going on, and the `id` is "" if none is. The run's `warning` names
    tasks on unreachable hosts.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._stopped(arguments) if arguments["state"] == "stopped" else self._started(arguments)

    def _stopped(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self.variables.get("ansible_limit"):
            return self._failure("stop.yml ends a whole run; type it without --limit")
        hosts = arguments["found"]
        try:
            run_id = going_on(hosts, str(arguments["run_id"]))
        except RefusedError as refused:
            return self._failure("\n".join(refused.problems))
        if not run_id:
            return {"run": {"id": ""}}
        folder = Path(arguments["runs_directory"]).resolve() / run_id
        try:
            settings, tasks = begun_run(folder)
        except (KeyError, ValueError):  # it was started elsewhere: use today's settings
            settings = self.variables["cluster_settings"]
            tasks = tasks_of_run(self.variables["cluster_plan"], settings)
        ended = {"tasks": stopped_tasks(run_id, tasks, hosts), "warning": unstopped(tasks, hosts)}
        return {"run": described_run(folder, settings, tasks) | ended}

    def _started(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            run_id = str(arguments["run_id"])
            run = self._decided(run_id, arguments) if run_id else self._new(arguments)
        except RefusedError as refused:
            return self._failure("The run cannot start:\n- " + "\n- ".join(refused.problems))
        except OSError as error:
            return self._failure(f"{error.filename}: {error.strerror}")
        folders = newest_first(Path(run["folder"]).parent)
        cluster = self.variables["cluster_plan"]["cluster_name"]
        return {"run": run, "collected": [each.name for each in folders if collected_whole(each, cluster)]}

    def _new(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a run with a name that neither a host nor another run on the controller has."""
        tasks = [task for found in arguments["found"].values() for task in found["tasks"]]
        taken = {task["run_id"] for task in tasks}
        now = datetime.now(tz=timezone.utc)
        for run_id in names_of_new(self.variables["cluster_plan"]["cluster_name"], now):
            folder = Path(arguments["runs_directory"]).resolve() / run_id
            if run_id in taken or folder.exists():
                continue
            run = self._decided(run_id, arguments)
            try:
                if not self._task.check_mode:
                    make_folder(folder, exist_ok=False)
                return run
            except FileExistsError:
                if not folder.exists():  # the folder of all runs is a file
                    raise
        raise AssertionError

    def _decided(self, run_id: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        plan, today = self.variables["cluster_plan"], self.variables["cluster_settings"]
        folder = Path(arguments["runs_directory"]).resolve() / run_id
        try:
            begun = begun_settings(folder)
            tasks = tasks_of_run(plan, begun or today)
        except (KeyError, ValueError) as error:
            raise RefusedError(f"{folder / 'settings.json'} is damaged: {error}") from error
        settings, begun_on = begun or today, read_object(folder / "plan.json")
        of_folder = Folder(
            state_of(folder),
            str(begun_on.get("hash", "")),
            settings["program"],
            begun_on.get("tasks", ()),
            can_resize(settings),
        )
        if not begun and (names := today.get("unchosen")):
            what = "trainer_programs has several programs, and a run trains one"
            raise RefusedError(f"{what}: choose one with -e program=...: {', '.join(names)}")
        action = decide(run_id, plan, tasks, arguments["found"], of_folder)
        settings = today
        if begun:
            chosen = [name.removeprefix(PREFIX) for name in load_extra_vars(self._loader)]
            try:
                settings = resumed_settings(
                    ClusterPlan.from_json(plan), begun, today, chosen if action == "start" else ()
                )
            except (KeyError, ValueError) as error:
                what = f"run {run_id} cannot go on with the settings it began with: {error}"
                raise RefusedError(what) from error
        run = described_run(folder, settings, tasks) | {"action": action}
        if action == "start":
            by, now = self.variables["cluster_person"], datetime.now(tz=timezone.utc)
            run["settings"]["begun"] = beginning(run["settings"], by, now)
        return run
