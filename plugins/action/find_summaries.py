"""Finds the runs on the controller that have summaries for TensorBoard."""

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from psfleet.run.tensorboard_folders import run_folders, runs_going_on, summary_folders

from ..plugin_utils.actions import ControllerAction


class ActionModule(ControllerAction):
    """Returns `going_on`, `sources` and `runs`, for TensorBoard.

    - `going_on`: the runs that are going on, as `collect_run` takes them.
    - `sources`: {name that TensorBoard shows: folder here with summaries}, as `carried_manifest` takes them.
    - `runs`: the paths of the runs' folders that have summaries. With `required`, the action fails if none
      has.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        directory = Path(arguments["runs_directory"]).resolve()
        try:
            runs = run_folders(directory, arguments["run_id"], arguments["cluster_name"])
            going_on = runs_going_on(runs)
        except ValueError as error:
            raise AnsibleActionFail(str(error)) from error
        sources = summary_folders(runs)
        if arguments.get("required") and not sources and not self._task.check_mode:
            which = f"run {arguments['run_id']}" if arguments["run_id"] else "any run of this cluster"
            raise AnsibleActionFail(
                f"{directory} has no summaries of {which}. With trainer_summary_steps above 0 the workers "
                "write them; a program writes its event files into summaries, output or checkpoints. A run "
                "that has just begun has none yet"
            )
        shown = {name.partition("/")[0] for name in sources}
        return {
            "going_on": going_on,
            "sources": sources,
            "runs": [str(run) for run in runs if run.name in shown],
        }
