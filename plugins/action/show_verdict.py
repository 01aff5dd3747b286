"""Judges a run's folder on the controller, shows the verdict, and fails if it is not a good one."""

from pathlib import Path
from typing import Any

from ansible.utils.display import Display

from psfleet.evidence.reading import read_run, record_settings
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.runs_directory import NoSuchRun, find_run
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.verdict import FILE_NAME, Verdict, judge_run
from psfleet.evidence.verdict_lines import as_lines
from psfleet.inventory.problems import shown
from psfleet.report import LOSS_PICTURE, NEEDS, REPORT
from psfleet.watch.console import columns_of_terminal

from ..plugin_utils.actions import ControllerAction

display = Display()

PREFIX = "training_evidence_"
COLORS = {"proven": "green", "completed": "cyan", "not proven": "red", "cannot tell": "yellow"}
LINE_COLORS = {"ok": "green", "failed": "red", "unknown": "yellow", "open": "cyan", "figure": None}


class ActionModule(ControllerAction):
    """Arguments: `runs_directory`, `run_id` (null for the newest run), `settings` (name -> value).

    With `required`, a run that is neither proven nor completed fails. With `brief`, only the headline of a
    good verdict is shown. Returns `verdict`, `run_id` and `folder`.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        run_id = arguments.get("run_id")
        try:
            settings = EvidenceSettings.from_mapping(arguments["settings"], PREFIX)
            runs_directory = Path(arguments["runs_directory"]).resolve()
            folder = find_run(runs_directory, None if run_id is None else str(run_id))
        except NoSuchRun as refusal:
            return self._failure(str(refusal))
        except ValueError as problems:
            where = "set it in inventory/<name>/group_vars/tf_cluster.yml or with -e"
            return self._failure(f"{problems}; {where}")
        run = read_run(folder, folder.name)
        verdict = judge_run(run, settings)
        for line, kind in as_lines(verdict, folder, columns_of_terminal()):
            color = COLORS[verdict.verdict] if kind == "headline" else LINE_COLORS[kind]
            if kind == "headline" or verdict.exit_code or not arguments.get("brief"):
                display.display(line, color=color)
        if not self._task.check_mode:
            self._write_verdict(verdict, folder)
            self._draw(run, verdict)
        result = {"verdict": verdict.verdict, "run_id": verdict.run_id, "folder": str(folder)}
        if verdict.exit_code == 0 or not arguments["required"]:
            return result
        # The failed checks were shown above.
        where = f"docs/verdict.md says what each check means; the whole verdict is in {folder / FILE_NAME}"
        if (logs := folder / "logs").is_dir():
            where += f"\nWhat the tasks have printed is in {logs}"
        return result | self._failure(f"{verdict.headline} (run {verdict.run_id})\n{where}")

    def _write_verdict(self, verdict: Verdict, folder: Path) -> None:
        try:
            record_settings(folder, verdict.settings)
            verdict.write(folder)
        except OSError as error:
            display.warning(f"{folder / FILE_NAME} was not written: {error}")

    def _draw(self, run: Run, verdict: Verdict) -> None:
        """Write the report; a problem with that is a warning, not a failure of the run."""
        page = run.folder / REPORT
        try:
            for name in (REPORT, LOSS_PICTURE):  # those of an earlier verdict
                (run.folder / name).unlink(missing_ok=True)
            from psfleet.report.page import write_report

            write_report(run, verdict)
        except ImportError as error:
            display.warning(f"{page} was not drawn: {error}: {NEEDS}")
        except Exception as error:
            again = f"python -m psfleet.report {shown(run.folder)} shows more"
            display.warning(f"{page} was not drawn: {type(error).__name__}: {error}; {again}")
        else:
            display.display(f"\n  the report, for a browser: {shown(page)}")
