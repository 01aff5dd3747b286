"""Decide once for the whole cluster whether a run starts, goes on, is attached to, or is refused."""

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible.utils.vars import load_extra_vars

from psfleet.evidence.runs_directory import newest_first
from psfleet.inventory.variables import PREFIX
from psfleet.run.folder import begun_settings, collected_whole, described_run, state_of, tasks_of_run
from psfleet.run.settings import resumed_settings
from psfleet.run.start import Folder, RefusedError, decide
from trainer.contract.json_files import read_object
from trainer.contract.plan import ClusterPlan

from ..plugin_utils.actions import ControllerAction


class ActionModule(ControllerAction):
    """Arguments: `run_id` ("" for a new one), `runs_directory`, `found` (host -> result of trainer_tasks).

    Returns `run` with `id`, `action`, `folder`, `settings`, `tasks` and `lead`, or fails; and
    `collected`, the runs of this cluster of which hosts may forget what they have, the newest first.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            run = self._decided(arguments)
        except RefusedError as refused:
            return self._failure("The run cannot start:\n- " + "\n- ".join(refused.problems))
        folders = newest_first(Path(run["folder"]).parent)
        cluster = self.variables["cluster_plan"]["cluster_name"]
        return {"run": run, "collected": [each.name for each in folders if collected_whole(each, cluster)]}

    def _decided(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        plan, today = self.variables["cluster_plan"], self.variables["cluster_settings"]
        now = datetime.now(tz=timezone.utc)
        run_id = str(arguments["run_id"] or f"{plan['cluster_name']}-{now:%Y%m%d-%H%M%S}")
        folder = Path(arguments["runs_directory"]).resolve() / run_id
        try:
            begun = begun_settings(folder)
            tasks = tasks_of_run(plan, begun or today)
        except (KeyError, ValueError) as error:
            raise RefusedError(f"{folder / 'settings.json'} is damaged: {error}") from error
        plan_hash = str(read_object(folder / "plan.json").get("hash", ""))
        of_folder = Folder(state_of(folder), plan_hash, (begun or today)["program"])
        action = decide(run_id, plan, tasks, arguments["found"], of_folder)
        settings = today
        if begun:
            chosen = [name.removeprefix(PREFIX) for name in load_extra_vars(self._loader)]
            try:
                settings = resumed_settings(
                    ClusterPlan.from_json(plan), begun, today, chosen if action == "start" else ()
                )
            except (KeyError, ValueError) as error:
                what = f"run {run_id} cannot go on with what it began with: {error}"
                raise RefusedError(what) from error
        return described_run(folder, settings, tasks) | {"action": action}
