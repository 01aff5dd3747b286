"""The lines that status.yml prints, within the terminal's width."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence

from trainer.status import Kind, Row, Status, duration

Line = tuple[str, Kind]
# The name of each column, and its cells with its heading first.
Cells = list[tuple[str, list[str]]]

NARROW_COLUMNS = 100
HOST_CHARACTERS = 24
NARROW_HOST_CHARACTERS = 12
SHORTEST_MESSAGE = 8
REASONS_SHOWN = 10
UNKNOWN = "-"
_GAP = "  "
_MEBIBYTE = 2**20

_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("TASK", lambda row: row.task),
    ("HOST", lambda row: row.host),
    ("STATE", lambda row: row.state),
    ("SINCE", lambda row: UNKNOWN if row.since_seconds is None else duration(row.since_seconds)),
    ("RESTARTS", lambda row: str(row.restarts) if row.restarts else UNKNOWN),
    ("STEP", lambda row: UNKNOWN if row.global_step is None else str(row.global_step)),
    ("LOSS", lambda row: UNKNOWN if row.loss is None else f"{row.loss:.4g}"),
    ("STEPS/S", lambda row: UNKNOWN if row.steps_per_second is None else _rate(row.steps_per_second)),
)
_NUMBERS = {"SINCE", "RESTARTS", "STEP", "LOSS", "STEPS/S"}


def as_lines(status: Status, columns: int, *, verbose: bool = False) -> Iterator[Line]:
    """Give the lines for people: the table, the run, what is wrong, and how many tasks are in which state.

    `columns` is the terminal's width, 0 where there is none and nothing is cut. `verbose` gives each task a
    second line.
    """
    cells = _cells(status.rows, columns)
    room = _room(cells, columns)
    yield from _table(status.rows, cells, columns, room, verbose=verbose)
    yield "", "plain"
    for text in status.run.splitlines():
        yield from _wrapped(text, "plain", columns)
    for line in _reasons(status.rows, room):
        yield from _wrapped(line, "bad", columns)
    for note in status.notes:
        yield from _wrapped(note, "unknown", columns)
    yield from _wrapped(status.summary, "plain", columns)


def _table(rows: Sequence[Row], cells: Cells, columns: int, room: int, *, verbose: bool) -> Iterator[Line]:
    said = room >= SHORTEST_MESSAGE and any(row.message for row in rows)
    lines = [
        _GAP.join(
            column[number].rjust(_width(column)) if name in _NUMBERS else column[number].ljust(_width(column))
            for name, column in cells
        )
        for number in range(len(rows) + 1)
    ]
    messages = ["LAST MESSAGE", *(row.message for row in rows)]
    if said:
        lines = [f"{line}{_GAP}{_cut(text, room)}" for line, text in zip(lines, messages, strict=True)]
    fitting = [_cut(line.rstrip(), columns or sys.maxsize) for line in lines]
    yield fitting[0], "plain"
    for line, row in zip(fitting[1:], rows, strict=True):
        yield line, row.kind
        if verbose:
            yield _details(row), "plain"


def _room(cells: Cells, columns: int) -> int:
    """Return how many characters of a message fit into the table."""
    if not columns:
        return sys.maxsize
    return columns - sum(_width(column) + len(_GAP) for _, column in cells)


def _width(column: Sequence[str]) -> int:
    return max(len(cell) for cell in column)


def _cells(rows: Sequence[Row], columns: int) -> Cells:
    """Return the columns but those that say nothing."""
    longest = (NARROW_HOST_CHARACTERS if columns < NARROW_COLUMNS else HOST_CHARACTERS) if columns else 0
    cells = []
    for name, value in _COLUMNS:
        column = [value(row) for row in rows]
        if name == "HOST" and longest:
            column = [_cut(cell, longest) for cell in column]
        if any(cell != UNKNOWN for cell in column):
            cells.append((name, [name, *column]))
    return cells


def _details(row: Row) -> str:
    parts = [row.unit]
    if row.pid:
        parts.append(f"pid {row.pid}")
    if row.memory_bytes is not None:
        parts.append(f"memory {row.memory_bytes / _MEBIBYTE:.0f} MiB")
    if row.cpu_seconds is not None:
        parts.append(f"CPU {row.cpu_seconds:.1f} s")
    return _GAP.join(["", *(part for part in (*parts, row.log) if part)])


def _reasons(rows: Sequence[Row], room: int) -> Iterator[str]:
    """Give in full why tasks do not run, where the table has cut it."""
    cut = [row for row in rows if row.kind == "bad" and len(row.message) > room]
    for row in cut[:REASONS_SHOWN]:
        yield f"{row.task} on {row.host} {row.state}: {row.message}"
    if len(cut) > REASONS_SHOWN:
        yield f"and {len(cut) - REASONS_SHOWN} more; `ansible-playbook status.yml | cat` cuts none"


def _wrapped(text: str, kind: Kind, columns: int) -> Iterator[Line]:
    if not columns:
        yield text, kind
        return
    for line in textwrap.wrap(text, columns - 1, subsequent_indent=_GAP):
        yield line, kind


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _rate(steps_per_second: float) -> str:
    return f"{steps_per_second:.1f}" if steps_per_second < 100 else f"{steps_per_second:.0f}"
