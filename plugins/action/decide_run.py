"""Decides for the whole cluster whether a run starts, resumes, is watched again, or is refused."""

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible.utils.vars import load_extra_vars

from psfleet.evidence.runs_directory import newest_first
from psfleet.inventory.variables import PREFIX
from psfleet.run.folder import (
    begun_settings,
    collected_whole,
    described_run,
    make_folder,
    names_of_new,
    state_of,
    tasks_of_run,
)
from psfleet.run.person import beginning
from psfleet.run.settings import resumed_settings
from psfleet.run.start import Folder, RefusedError, decide
from trainer.contract.json_files import read_object
from trainer.contract.plan import ClusterPlan

from ..plugin_utils.actions import ControllerAction


class ActionModule(ControllerAction):
    """Arguments: `run_id` ("" for a new one), `runs_directory`, `found` (host -> result of trainer_tasks).

    Returns `run` with `id`, `action`, `folder`, `settings`, `tasks` and `lead`, or fails; and `collected`,
    the runs of this cluster that hosts may delete, the newest first.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
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
        plan_hash = str(read_object(folder / "plan.json").get("hash", ""))
        of_folder = Folder(state_of(folder), plan_hash, (begun or today)["program"])
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
