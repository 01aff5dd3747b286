"""Writes into a run's folder on the controller how the run begins, or how it ended."""

from pathlib import Path
from typing import Any

from psfleet.evidence.manifest import FILE_NAME, Manifest
from psfleet.report.devices import render
from psfleet.run.folder import write_beginning
from trainer.contract.json_files import write_json

from ..plugin_utils.actions import ControllerAction


class ActionModule(ControllerAction):
    """Arguments: `run` (of decide_run), `state` (for state.json), `endings` if it has ended.

    `endings` are the results of trainer_tasks. By then all files are collected except those in `left_out`,
    and those of hosts without an answer.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        run, folder = arguments["run"], Path(arguments["run"]["folder"])
        state: dict[str, Any] = {"state": arguments["state"]}
        if self._task.check_mode:
            return {"changed": True}
        try:
            if "endings" not in arguments:
                write_beginning(run, self.variables["cluster_plan"])
                # An older manifest belongs to an earlier part of the run.
                (folder / FILE_NAME).unlink(missing_ok=True)
                write_json(folder / "state.json", state, indent=4)
                return {"changed": True}
            silent = {*run["settings"]["tasks"]} - {task["name"] for task in arguments["endings"]}
            state["left_out"] = [*arguments["left_out"], *(f"{task}: no answer" for task in sorted(silent))]
            write_json(folder / "tasks.json", arguments["endings"], indent=4)
            write_json(folder / "state.json", state, indent=4)
            # The reports come from hosts, so write the state first: whatever they contain, the run has ended.
            if any(folder.glob("devices/*.json")):
                (folder / "devices.txt").write_text(render(folder), encoding="utf-8")
            # This comes last, because it has the hashes of everything that was collected and written before.
            Manifest.of(folder).write(folder)
        except OSError as error:
            return self._failure(f"{error.filename}: {error.strerror}")
        return {"changed": True}
