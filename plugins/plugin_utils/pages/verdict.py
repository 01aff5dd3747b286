"""The page `verdict`: judges a run's folder on the controller; it fails unless the verdict is good."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psfleet.evidence.reading import read_run, record_settings
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.runs_directory import NoSuchRunError, find_run
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.verdict import FILE_NAME, Verdict, judge_run
from psfleet.evidence.verdict_lines import as_lines
from psfleet.inventory.problems import short_path
from psfleet.report import LOSS_PICTURE, NEEDS, REPORT
from psfleet.watch.console import columns_of_terminal
from psfleet.watch.terminal import escaping_display

from ..actions import HostAction

display = escaping_display()

PREFIX = "training_evidence_"
COLORS = {"proven": "green", "completed": "cyan", "not proven": "red", "cannot tell": "yellow"}
LINE_COLORS = {"ok": "green", "failed": "red", "unknown": "yellow", "open": "cyan", "figure": None}


def show_page(  # noqa: PLR0913 - the arguments of an Ansible task
    action: HostAction,
    runs_directory: str,
    settings: Mapping[str, object],
    run_id: object = None,
    *,
    required: bool,
    brief: bool = False,
) -> dict[str, Any]:
    """Judge a run and show its verdict; return `verdict`, `run_id` and `folder` (the run's).

    `settings` is {name of a threshold: value}. A `run_id` of None means the newest run. With `required`, the
    answer is also a failure unless the verdict is proven or completed; without, only wrong settings and a
    missing run fail. With `brief`, only the headline of a good verdict is shown.
    """
    try:
        thresholds = EvidenceSettings.from_mapping(settings, PREFIX)
        folder = find_run(Path(runs_directory).resolve(), None if run_id is None else str(run_id))
    except NoSuchRunError as refusal:
        return action._failure(str(refusal))
    except ValueError as problems:
        where = "set it in inventory/<name>/group_vars/tf_cluster.yml or with -e"
        return action._failure(f"{problems}; {where}")
    run = read_run(folder, folder.name)
    verdict = judge_run(run, thresholds)
    for line, kind in as_lines(verdict, folder, columns_of_terminal()):
        color = COLORS[verdict.verdict] if kind == "headline" else LINE_COLORS[kind]
        if kind == "headline" or verdict.exit_code or not brief:
            display.display(line, color=color)
    if not action.check_mode:
        _write_verdict(verdict, folder)
        _draw(run, verdict)
    result = {"verdict": verdict.verdict, "run_id": verdict.run_id, "folder": str(folder)}
    if verdict.exit_code == 0 or not required:
        return result
    # The failed checks were shown above.
    where = f"docs/verdict.md says what each check means; the whole verdict is in {folder / FILE_NAME}"
    if (logs := folder / "logs").is_dir():
        where += f"\nWhat the tasks have printed is in {logs}"
    return result | action._failure(f"{verdict.headline} (run {verdict.run_id})\n{where}")


def _write_verdict(verdict: Verdict, folder: Path) -> None:
    try:
        record_settings(folder, verdict.settings)
        verdict.write(folder)
    except OSError as error:
        display.warning(f"{folder / FILE_NAME} was not written: {error}")


def _draw(run: Run, verdict: Verdict) -> None:
    """Write the report and the picture of the loss; only warn if this is not possible."""
    page = run.folder / REPORT
    try:
        for name in (REPORT, LOSS_PICTURE):  # those of an earlier verdict
            (run.folder / name).unlink(missing_ok=True)
        from psfleet.report.page import write_report

        write_report(run, verdict)
    except ImportError as error:
        display.warning(f"{page} was not drawn: {error}: {NEEDS}")
    except Exception as error:
        again = f"python -m psfleet.report {short_path(run.folder)} shows more"
        display.warning(f"{page} was not drawn: {type(error).__name__}: {error}; {again}")
    else:
        display.display(f"\n  the report, for a browser: {short_path(page)}")
