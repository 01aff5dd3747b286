"""Draws what runs.yml shows: the table of runs, hosts that did not answer, and the disk space of all runs."""

from collections.abc import Iterator
from datetime import datetime, timezone

from rich.console import RenderableType

from psfleet.watch.console import PlaybookConsole
from psfleet.watch.runs import RunList
from psfleet.watch.status_table import UNKNOWN, Columns, table_of
from trainer.host.wording import first_of, readable

_COLUMNS: Columns = {
    "RUN": lambda row: row.run_id,
    "TRAINS": lambda row: row.trains or UNKNOWN,
    "STEPS": lambda row: f"{row.steps:.0f}" if row.steps else UNKNOWN,
    "VERDICT": lambda row: row.judged or UNKNOWN,
    "COLLECTED": lambda row: row.collected,
    "HERE": lambda row: UNKNOWN if row.here is None else readable(row.here),
    "ON HOSTS": lambda row: readable(sum(row.hosts.values())) if row.hosts else UNKNOWN,
    "BEGAN": lambda row: _moment(row.began),
    "HOSTS": lambda row: first_of(list(row.hosts), 3) or UNKNOWN,
}
# The columns that are dropped first on a narrow terminal.
_DISPENSABLE = ("HOSTS", "BEGAN", "TRAINS", "HERE", "STEPS", "COLLECTED")


def _moment(seconds: float) -> str:
    """Return a Unix time as text in the local time zone, such as "2026-01-31 12:00".

    Return UNKNOWN ("-") if it is invalid, because a host may report anything.
    """
    try:
        return f"{datetime.fromtimestamp(seconds, timezone.utc).astimezone():%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def runs_table(runs: RunList, console: PlaybookConsole, *, verbose: bool = False) -> Iterator[RenderableType]:
    """Yield the table of runs, the notes and the summary; without runs, no table.

    With `verbose`, the size of each run on each host follows the table. On a narrow console, columns of
    _DISPENSABLE are left out.
    """
    columns = dict(_COLUMNS)
    for name in _DISPENSABLE:
        if console.width_of(table_of(runs.rows, columns, console)) > console.width:
            columns.pop(name)
    if runs.rows:
        yield table_of(runs.rows, columns, console)
        yield ""
    for row in runs.rows if verbose else ():
        for host, size in row.hosts.items():
            yield console.words(f"{row.run_id} on {host}: {readable(size)}")
    yield from (console.words(note, "warning") for note in runs.notes)
    yield console.words(runs.summary)
