"""Finds the run that stop.yml stops, and its tasks, from every host's answer."""

from pathlib import Path
from typing import Any

from psfleet.run.folder import begun_run, described_run, tasks_of_run
from psfleet.run.start import RefusedError, going_on, stopped_tasks, unstopped

from ..plugin_utils.actions import ControllerAction


class ActionModule(ControllerAction):
    """Arguments: `run_id` ("" for any that is going on), `runs_directory`, `found` (as for `decide_run`).

    Returns `run` with `id` ("" if none is going on), `folder`, `settings`, `tasks` and `lead`, or fails. Its
    `warning` names tasks on unreachable hosts.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        variables = self.variables
        if variables.get("ansible_limit"):
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
            settings = variables["cluster_settings"]
            tasks = tasks_of_run(variables["cluster_plan"], settings)
        ended = {"tasks": stopped_tasks(run_id, tasks, hosts), "warning": unstopped(tasks, hosts)}
        return {"run": described_run(folder, settings, tasks) | ended}
