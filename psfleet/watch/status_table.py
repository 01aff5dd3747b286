"""Draws what status.yml shows: the tasks, the run, problems, and the number of tasks in each state."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from psfleet.watch.console import ANY_WIDTH, GAP, PlaybookConsole, empty_table
from psfleet.watch.screen_text import duration
from psfleet.watch.status import ClusterStatus, TaskRow
from trainer.host.wording import first_of, grouped, readable

SHORTEST_MESSAGE = 8
REASONS_SHOWN = 10
UNKNOWN = "-"

Columns = Mapping[str, Callable[[Any], str]]


def _figure(name: str, shown: Callable[[Any], str] = str) -> Callable[[TaskRow], str]:
    return lambda row: UNKNOWN if (value := row.figures.get(name)) is None else shown(value)


_COLUMNS: Columns = {
    "TASK": lambda row: row.task,
    "HOST": lambda row: row.host,
    "STATE": lambda row: row.state,
    "SINCE": _figure("since_seconds", duration),
    "RESTARTS": _figure("restarts", lambda count: str(count or UNKNOWN)),
    "STEP": _figure("global_step", lambda step: f"{step:.0f}"),
    "LOSS": _figure("loss", lambda loss: f"{loss:.4g}"),
    "STEPS/S": _figure("steps_per_second", lambda rate: f"{rate:.1f}" if rate < 100 else f"{rate:.0f}"),
    "WILL HOLD": _figure("held_bytes", readable),
}
_DETAILS: Columns = {
    "TASK": lambda row: row.task,
    "PID": _figure("pid", lambda pid: str(pid or UNKNOWN)),
    "MEMORY": _figure("memory_bytes", lambda count: f"{count / 2**20:.0f} MiB"),
    "CPU": _figure("cpu_seconds", lambda seconds: f"{seconds:.1f} s"),
    "UNIT": _figure("unit"),
    "LOG": _figure("log"),
}
_WORDS = {"TASK", "HOST", "STATE", "LAST MESSAGE", "UNIT", "LOG"}
_WORDS |= {"RUN", "TRAINS", "VERDICT", "COLLECTED", "BEGAN", "HOSTS"}  # of runs.yml


def status_table(
    status: ClusterStatus, console: PlaybookConsole, *, verbose: bool = False
) -> Iterator[RenderableType]:
    """Yield the table of tasks, the runs, the problems and the summary.

    With `verbose`, a second table has the process and the log of each task. On a narrow console, the last
    columns are left out.
    """
    columns = dict(_COLUMNS)
    while (wide := console.width_of(table_of(status.rows, columns, console))) > console.width:
        columns.popitem()
    room = console.width - wide - GAP
    if room >= SHORTEST_MESSAGE and any(row.message for row in status.rows):
        columns["LAST MESSAGE"] = lambda row: row.message
    yield table_of(status.rows, columns, console, room)
    yield ""
    if verbose:
        yield table_of(status.rows, _DETAILS, console)
        yield ""
    yield from map(console.words, status.run.splitlines())
    yield from (console.words(reason, "bad") for reason in _reasons(status.rows, room))
    yield from (console.words(note, "warning") for note in status.notes)
    yield console.words(status.summary)


def table_of(rows: Sequence[Any], columns: Columns, console: PlaybookConsole, room: int = 0) -> Table:
    """Return the table of the rows, without columns whose cells are all UNKNOWN ("-").

    `columns` is {heading: function that returns the cell of a row}. Messages are cut to `room` characters,
    and long names of hosts are cut, unless the console has any width. A row's `style` is its colour.
    """
    cells = {name: [value(row) for row in rows] for name, value in columns.items()}
    cells = {name: column for name, column in cells.items() if set(column) - {UNKNOWN}}
    longest: dict[str, int] = {}
    if console.width < ANY_WIDTH:
        longest = {"HOST": 12 if console.width < 100 else 24, "LAST MESSAGE": room}
    table = empty_table()
    for name in cells:
        whole = name == "LOG"  # a path is copied
        table.add_column(
            name,
            justify="left" if name in _WORDS else "right",
            max_width=longest.get(name),
            no_wrap=not whole,
            overflow="fold" if whole else "ellipsis",
        )
    for row, texts in zip(rows, zip(*cells.values(), strict=True), strict=True):
        table.add_row(*map(console.words, texts), style=row.style)
    return table


def _reasons(rows: Sequence[TaskRow], room: int) -> Iterator[str]:
    """Yield in full the messages that the table has cut to `room` characters, of tasks in the style "bad".

    These tasks failed, hang or restart. Tasks with the same state and message share a line. After ten lines,
    one line says how many tasks remain.
    """
    cut = [row for row in rows if row.style == "bad" and len(row.message) > room]
    alike = grouped(((row.state, row.message), f"{row.task} on {row.host}") for row in cut)
    for (state, message), names in [*alike.items()][:REASONS_SHOWN]:
        yield f"{first_of(names)} {state}: {message}"
    if more := sum(map(len, [*alike.values()][REASONS_SHOWN:])):
        yield f"and {more} more; `ansible-playbook status.yml | cat` cuts none"
