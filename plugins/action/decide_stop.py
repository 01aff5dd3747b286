"""Find the run that stop.yml ends and its tasks, from what every host said of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from psfleet.run.folder import begun_settings, lead_of, tasks_of_run
from psfleet.run.start import RefusedError, going_on, stopped_tasks, unstopped
from psfleet.watch.hints import with_inventory
from trainer.contract.json_files import read_object


class ActionModule(ActionBase):
    """Arguments: `run_id` ("" for whichever is going on), `runs_directory`, `found` (as of `decide_run`)."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `run` with `id` ("" where none is going on), `folder`, `settings`, `tasks`, `lead`, or fail.

        Its `warning` names the tasks that nobody could reach.
        """
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        if variables.get("ansible_limit"):
            return result | {"failed": True, "msg": "stop.yml ends a whole run; type it without --limit"}
        hosts = self._task.args["found"]
        try:
            run_id = going_on(hosts, str(self._task.args["run_id"]))
        except RefusedError as refused:
            sources = variables["ansible_inventory_sources"]
            problems = [with_inventory(problem, sources) for problem in refused.problems]
            return result | {"failed": True, "msg": "\n".join(problems)}
        if not run_id:
            return result | {"changed": False, "run": {"id": ""}}
        folder = Path(self._task.args["runs_directory"]).resolve() / run_id
        settings, tasks = tasks_of_folder(folder, variables["cluster_plan"], variables["cluster_settings"])
        run = {
            "id": run_id,
            "folder": str(folder),
            "settings": {
                "training": settings["cluster"],
                "tasks": settings["tasks"],
                "program": settings.get("program"),
            },
            "tasks": stopped_tasks(run_id, tasks, hosts),
            "lead": lead_of(tasks),
            "warning": unstopped(tasks, hosts),
        }
        return result | {"changed": False, "run": run}


def tasks_of_folder(
    folder: Path, plan: Mapping[str, Any], settings: Mapping[str, Any]
) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """Return the settings and tasks of a run, by its folder; by today's where it was begun elsewhere."""
    try:
        begun = begun_settings(folder)
        return begun, tasks_of_run(read_object(folder / "plan.json"), begun)
    except (KeyError, ValueError):
        return settings, tasks_of_run(plan, settings)
