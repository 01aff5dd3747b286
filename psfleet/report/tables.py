"""Computes the report's tables: each worker's figures, settings, versions, and the ends of logs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from psfleet.evidence.recorded_run import Run
from psfleet.evidence.verdict import Verdict
from psfleet.evidence.verdict_lines import figure_lines
from psfleet.report.cluster_map import box_state
from psfleet.report.number_format import name_range, number, seconds, shorten
from psfleet.report.timeline import tasks_with_records
from trainer.host.wording import counted, first_of, grouped

_LOG_LINES = 15
_LOG_BYTES = 64 * 1024
_MOST_LOGS = 6
_MOST_FIGURES = 60
MOST_WORKERS = 400
MOST_IN_ORDER = 24
WORKER_COLUMNS = {
    "steps": "steps",
    "share": "share",
    "steps_per_second": "steps/s",
    "examples_per_second": "examples/s",
    "waiting_seconds": "waited",
    "staleness_mean": "staleness",
    "slowdown": "times slower than the median",
    "restarts": "restarts",
}

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class LogEnd:
    """The last lines of a task's log; without lines, `missing` says why."""

    task: str
    lines: tuple[str, ...] = ()
    missing: str = ""


def key_figures(verdict: Verdict) -> Pairs:
    """Return (name, value in words) of the figures that the terminal shows; () for a run without steps.

    The figures are those of `figure_lines`, at most 60.
    """
    if not verdict.figures["global_steps"]:
        return ()
    lines = list(figure_lines(verdict.figures))[:_MOST_FIGURES]
    return tuple((shorten(name, 80), shorten(value)) for name, value in lines)


def refused_connections(run: Run) -> Pairs:
    """Return one (name, value) with the connections to each task that fences refused; () if none.

    The list of tasks is cut after ten. Example: (("port fence refused", "3 connections to ps0"),)
    """
    refused = [
        f"{counted(ending.refused, 'connection')} to {name}"
        for name, ending in run.endings.items()
        if ending.refused
    ]
    return (("port fence refused", shorten(first_of(refused))),) if refused else ()


def worker_table(
    figures: Mapping[str, Any], named: Sequence[str]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return (header, rows) of the workers' table: a row of cells for each worker, its name first.

    A column without any value is left out. With more than 24 workers, those in `named` come first; there are
    at most 400 rows. `figures` is the result of `figures_of`.
    """
    workers: Mapping[str, Mapping[str, Any]] = figures["workers"]
    empty = {"restarts": (None, 0)}
    columns = [
        name
        for name in WORKER_COLUMNS
        if any(worker[name] not in empty.get(name, (None,)) for worker in workers.values())
    ]
    first = [name for name in named if name in workers] if len(workers) > MOST_IN_ORDER else []
    rows = [
        (name, *(_cell(column, workers[name][column]) for column in columns))
        for name in dict.fromkeys([*first, *workers])
    ]
    return ("worker", *(WORKER_COLUMNS[column] for column in columns)), tuple(rows[:MOST_WORKERS])


def versions(run: Run) -> Pairs:
    """Return (name, value) of the plan, releases, versions of TensorFlow and Python, and times.

    A value on which tasks disagree names the tasks. The times are by the clock of the chief's host, in UTC;
    they are left out if the chief has no records.
    """
    pairs = [("run", run.run_id)]
    if run.plan is not None:
        pairs += [("cluster", run.plan.cluster_name), ("plan", run.plan.hash)]
    of_task = {task.name: started[-1] for task in tasks_with_records(run) if (started := task.of("started"))}
    releases = ((name, record.release) for name, record in of_task.items())
    pairs.append(("release of the trainer", _shared(releases)))
    for field, title in (("tensorflow", "TensorFlow"), ("python", "Python")):
        pairs.append((title, _shared((name, record.text(field)) for name, record in of_task.items())))
    if run.program is not None:
        named = [str(run.program[key]) for key in ("name", "file") if run.program.get(key)]
        pairs.append(("program", ", ".join(named) or "-"))
        pairs.append(("release of the program", str(run.program.get("release") or "-")))
    if first := run.chief.of("started"):
        clock = f", by the clock of {run.chief.name}'s host"
        pairs.append((f"started{clock}", _date(first[0].wall)))
        pairs.append((f"last record{clock}", _date(run.chief.records[-1].wall)))
    return tuple((name, shorten(value)) for name, value in pairs)


def training_settings(run: Run) -> Pairs:
    """Return (name, value in words) of the run's training settings, in their order.

    For a program, these are the fields of program.json without `name`, `file` and `release`.
    """
    wanted = run.training if run.program is None else run.program
    hidden = {"name", "file", "release"} if run.program is not None else set()
    return as_pairs({name: value for name, value in wanted.items() if name not in hidden})


def log_ends(run: Run) -> tuple[LogEnd, ...]:
    """Return the ends of at most six logs: the logs of failed tasks, then the log of the lead.

    A log that is missing, empty or unreadable is included, with the reason; () if the run has no tasks.
    """
    failed = [task.name for task in run.expected if box_state(run, task.name)[0] == "bad"]
    lead = [run.chief.name] if run.expected else []
    names = list(dict.fromkeys([*failed, *lead]))[:_MOST_LOGS]
    return tuple(_log_end(run.folder, name) for name in names)


def _log_end(folder: Path, task: str) -> LogEnd:
    name = f"logs/{task}.out"
    path = folder / name
    if path.is_symlink() or not path.is_file():
        return LogEnd(task, missing=f"{name} is not in the folder")
    try:
        with path.open("rb") as log:
            log.seek(max(path.stat().st_size - _LOG_BYTES, 0))
            text = log.read(_LOG_BYTES).decode("utf-8", errors="replace")
    except OSError as error:
        return LogEnd(task, missing=f"{name} cannot be read: {error.strerror}")
    lines = [shorten(line) for line in text.splitlines() if line.strip()][-_LOG_LINES:]
    return LogEnd(task, tuple(lines), "" if lines else f"{name} is empty")


def _shared(values: Iterable[tuple[str, str]]) -> str:
    """Return the value that all tasks have; if they differ, each value with its tasks.

    `values` are (task, value). Without tasks, the text says that it is unknown; "" is shown as "not told".
    """
    tasks_of = grouped((value or "not told", task) for task, value in values)
    if len(tasks_of) < 2:
        return next(iter(tasks_of), "unknown: there are no records")
    return "; ".join(f"{value} ({name_range(tasks)})" for value, tasks in tasks_of.items())


def as_pairs(values: Mapping[str, object]) -> Pairs:
    """Return (name, value as text) for each value; a value that is no text is written as JSON.

    Names are cut to 80 characters, and values to 300.
    """
    in_words = {
        name: value if isinstance(value, str) else json.dumps(value, default=str)
        for name, value in values.items()
    }
    return tuple((shorten(str(name), 80), shorten(value)) for name, value in in_words.items())


def _cell(column: str, value: float | None) -> str:
    if value is None:
        return "-"
    if column == "share":
        return f"{value:.2%}"
    return seconds(value) if column == "waiting_seconds" else number(value)


def _date(wall: float) -> str:
    try:
        return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return "not a valid date"
