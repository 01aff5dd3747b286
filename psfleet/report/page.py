"""Fills the page's template, and writes the page into the run's folder."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from psfleet.evidence.recorded_run import Run
from psfleet.evidence.run_manifest import Manifest
from psfleet.evidence.saved_models import model_lines
from psfleet.evidence.untrusted_files import write_whole
from psfleet.evidence.verdict import Verdict
from psfleet.report import REPORT, model_tables, tables, timeline
from psfleet.report.advice import next_steps
from psfleet.report.cluster_map import host_boxes
from psfleet.report.number_format import first_and_last_rows, number, shorten
from psfleet.report.pictures import pictures, timeline_picture, write_loss_picture
from psfleet.report.series import notable_workers
from trainer.contract.progress import printable

_MARKS = {False: ("✗", "failed", "bad"), None: ("?", "unknown", "open"), True: ("✓", "holds", "good")}
_KINDS = {
    "proven": ("✓", "good"),
    "completed": ("✓", "fair"),
    "not proven": ("✗", "bad"),
    "cannot tell": ("?", "open"),
}


def write_report(run: Run, verdict: Verdict) -> Path:
    """Write report.html, and loss.png if there are losses, into the run's folder; return the page's path.

    Without losses, an existing loss.png is removed. The same run and verdict give the same bytes. Raises
    OSError if a file cannot be written.
    """
    page = render(run, verdict)
    write_loss_picture(run, verdict)
    target = run.folder / REPORT
    write_whole(target, page.encode())
    return target


def render(run: Run, verdict: Verdict) -> str:
    """Return the page of the report as HTML; nothing is written."""
    symbol, kind = _KINDS[verdict.verdict]
    columns, workers = tables.worker_table(verdict.figures, notable_workers(run, verdict.figures))
    rows, left_out = first_and_last_rows(timeline.rows(run), timeline.MOST_ROWS)
    return _template().render(
        run=run,
        verdict=verdict,
        symbol=symbol,
        kind=kind,
        checks=[(check, *mark) for ok, mark in _MARKS.items() for check in verdict.checks if check.ok is ok],
        next_steps=next_steps(verdict.failing, run.problem) if verdict.exit_code else (),
        figures=(*tables.key_figures(verdict), *tables.refused_connections(run)),
        models=[shorten(line) for line, _ in model_lines(run.folder, ".", run.global_steps)],
        pictures=pictures(run, verdict),
        timeline_picture=timeline_picture(run, verdict),
        timeline=rows,
        timeline_left_out=left_out,
        hosts=host_boxes(run),
        worker_columns=columns,
        workers=workers,
        table_columns=model_tables.COLUMNS,
        tables=model_tables.tables_in_use(verdict.figures),
        sampling_worker=next((of["worker"] for of in verdict.figures["tables"].values()), ""),
        ps_columns=model_tables.PS_COLUMNS,
        tables_by_ps=model_tables.tables_by_ps(verdict.figures),
        versions=tables.versions(run),
        settings=tables.training_settings(run),
        thresholds=tables.as_pairs(verdict.settings.as_dict()),
        logs=tables.log_ends(run),
        manifest=_files_in_manifest(run.folder),
        number=number,
    )


def _files_in_manifest(folder: Path) -> int | None:
    try:
        return len(Manifest.read(folder).files)
    except (OSError, ValueError):
        return None


def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Texts of hosts must neither mislead the reader nor contain characters that files cannot contain.
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters["shorten"] = shorten
    return environment.get_template("page.html.j2")
