"""Writes into a run's folder on the controller how the run begins, or how it ended."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from psfleet.carry.collected_files import INCOMING
from psfleet.evidence.exported_model import README, InvalidExportError, ModelExport
from psfleet.evidence.run_manifest import FILE_NAME, Manifest
from psfleet.evidence.untrusted_files import write_whole
from psfleet.inventory.problems import short_path
from psfleet.report.devices import render
from psfleet.report.model_card import model_card
from psfleet.run.active_runs import RefusedError
from psfleet.run.folder import left_out_entries, write_beginning
from psfleet.run.hook_events import note_event
from psfleet.watch.exports import accept_export, export_lines, verdict_on
from psfleet.watch.failed_run import resume_advice
from trainer.contract.export import EXPORT
from trainer.contract.json_files import write_json

from ..plugin_utils.actions import ControllerAction


class ActionModule(ControllerAction):
    """Writes the run's `state` into its folder, and how its tasks ended.

    - Without `endings`, it writes how the run begins.
    - With `endings`, it writes them, and the files that were not collected: `left_out`, and all files of
      tasks without an ending. Returns `to_go_on`, how to resume the run, in words. A run that is only
      collected again, from `hosts`, keeps its earlier endings.
    - With `event`, it writes no state, and returns `first`: True if the hook was not called for this event
      yet.
    - With the state "exported", it accepts the collected export, and returns `told`, lines for people.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        run, folder = arguments["run"], Path(arguments["run"]["folder"])
        if "event" in arguments:
            return {"first": self._task.check_mode or self._is_first(folder, str(arguments["event"]))}
        if arguments["state"] == "exported":
            return self._accept_export(run, arguments.get("left_out", []))
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
            if run.get("action") == "recollect":
                hosts, left_out = arguments["hosts"], arguments["left_out"]
                state = {
                    "state": "ended",
                    "left_out": left_out_entries(folder, run["tasks"], hosts, left_out),
                }
            else:
                silent = {*run["settings"]["tasks"]} - {task["name"] for task in arguments["endings"]}
                left_out = [f"{task}: no answer" for task in sorted(silent)]
                state["left_out"] = [*arguments["left_out"], *left_out]
                write_json(folder / "tasks.json", arguments["endings"], indent=4)
            write_json(folder / "state.json", state, indent=4)
            # The reports come from hosts, so write the state first: whatever they contain, the run has ended.
            if any(folder.glob("devices/*.json")):
                (folder / "devices.txt").write_text(render(folder), encoding="utf-8")
            # This comes last, because it has the hashes of everything that was collected and written before.
            Manifest.of(folder).write(folder)
        except OSError as error:
            return self._failure(f"{error.filename}: {error.strerror}")
        to_go_on = resume_advice(run, arguments.get("global_step"), arguments["endings"])
        return {"changed": True, "to_go_on": to_go_on}

    def _is_first(self, folder: Path, event: str) -> bool:
        try:
            return note_event(folder, event)
        except OSError:  # to be told twice is better than not at all
            return True

    def _accept_export(self, run: Mapping[str, Any], left_out: Sequence[str]) -> dict[str, Any]:
        folder = Path(run["folder"])
        incoming = folder / INCOMING
        arrives = run["action"] == "export"
        if self._task.check_mode and arrives:
            return {"changed": True, "told": []}
        try:
            exported = accept_export(folder, incoming, run) if arrives else ModelExport.read(folder / EXPORT)
            card = model_card(exported, verdict_on(folder), run["name"], run["checkpoint"]).encode()
            readme = exported.folder / README
            changed = not readme.is_file() or readme.read_bytes() != card
            if changed and not self._task.check_mode:
                write_whole(readme, card)
        except (InvalidExportError, RefusedError) as refused:
            lacking = "".join(f"\n- not collected, {each}" for each in left_out)
            what = f"what came from {run['exporter']['host']} is refused: {refused}"
            return self._failure(f"Nothing was exported: {what}{lacking}")
        except OSError as error:
            return self._failure(f"{error.filename}: {error.strerror}")
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
        return {
            "changed": arrives or changed,
            "told": export_lines(exported, run, short_path(exported.folder)),
        }
