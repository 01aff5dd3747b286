"""The lines that doctor.yml prints, within the terminal's width."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby

from trainer.doctor_findings import GROUPS, Findings, HostRow, Problem, host_names
from trainer.host.check import State
from trainer.status import Kind

Line = tuple[str, Kind]

# Of more hosts, those that follow one another and are alike share a row.
MOST_ROWS = 20
FOUND_SHOWN = 10
HOST_CHARACTERS = 40
FEWEST_COLUMNS_OF_TEXT = 40
_GAP = "  "
_CELLS: dict[State | None, str] = {
    "ok": "ok",
    "warning": "warn",
    "failed": "FAILED",
    "skipped": "-",
    None: "-",
}
_KINDS: dict[State, Kind] = {"ok": "good", "warning": "unknown", "failed": "bad", "skipped": "plain"}


def as_lines(findings: Findings, columns: int, *, verbose: bool = False) -> Iterator[Line]:
    """Give the lines for people: the table, what is wrong and what to do, and how many checks there were.

    `columns` is the terminal's width, 0 where there is none and nothing is wrapped. A table that is wider
    goes on below itself. `verbose` adds what was found on each host.
    """
    rows = _folded(findings.rows, findings.names)
    for names in _parts(rows, findings.names, columns):
        yield from _table(rows, names)
        yield "", "plain"
    if verbose:
        yield from _details(findings.rows, columns)
    for problem in findings.problems:
        yield from _problem(problem, columns)
    for note in findings.notes:
        yield from _wrapped(note, "", "unknown", columns)
    kind: Kind = "bad" if findings.failed else "unknown" if findings.problems else "good"
    yield from _wrapped(findings.summary, "", kind, columns)


def _folded(rows: Sequence[HostRow], names: Sequence[str]) -> list[tuple[str, HostRow]]:
    """Return a title and the row of each host, or of hosts that follow one another and are alike."""
    if len(rows) <= MOST_ROWS:
        return [(_cut(row.host), row) for row in rows]
    folded = []
    for _, alike in groupby(rows, lambda row: (bool(row.problem), *(row.state(name) for name in names))):
        group = list(alike)
        first, last = _cut(group[0].host), _cut(group[-1].host)
        folded.append((first if len(group) == 1 else f"{first} .. {last} ({len(group)} hosts)", group[0]))
    return folded


def _parts(rows: Sequence[tuple[str, HostRow]], names: Sequence[str], columns: int) -> list[list[str]]:
    """Divide the columns so that each part fits into the terminal, between two groups where that is enough.

    No part is without a column.
    """
    room = (columns or sys.maxsize) - 1 - _title_width(rows)
    parts: list[list[str]] = []
    for _, group in groupby(names, _group_of):
        together = list(group)
        wide = _columns_width(together, rows) > room
        for piece in [[name] for name in together] if wide else [together]:
            if parts and _columns_width([*parts[-1], *piece], rows) <= room:
                parts[-1].extend(piece)
            else:
                parts.append(piece)
    return parts or [[]]


def _group_of(name: str) -> int:
    """Return which of the groups of columns a name is in; one that is not known makes a last group."""
    return next((number for number, group in enumerate(GROUPS) if name in group), len(GROUPS))


def _columns_width(names: Sequence[str], rows: Sequence[tuple[str, HostRow]]) -> int:
    return sum(len(_GAP) + _width(name, rows) for name in names)


def _table(rows: Sequence[tuple[str, HostRow]], names: Sequence[str]) -> Iterator[Line]:
    widths = [_width(name, rows) for name in names]
    titles = _title_width(rows)
    heading = [name.upper().ljust(width) for name, width in zip(names, widths, strict=True)]
    yield _GAP.join(["HOST".ljust(titles), *heading]).rstrip(), "plain"
    for title, row in rows:
        cells = [_CELLS[row.state(name)].ljust(width) for name, width in zip(names, widths, strict=True)]
        if row.problem:
            cells = ["not reached"]
        yield _GAP.join([title.ljust(titles), *cells]).rstrip(), _KINDS[_worst(row, names)]


def _worst(row: HostRow, names: Sequence[str]) -> State:
    """Return the worst state in a line of the table, which may hold some of the columns alone."""
    states = {"failed"} if row.problem else {row.state(name) for name in names}
    worst: tuple[State, ...] = ("failed", "warning", "ok")
    return next((state for state in worst if state in states), "skipped")


def _title_width(rows: Sequence[tuple[str, HostRow]]) -> int:
    return max(len("HOST"), *(len(title) for title, _ in rows)) if rows else len("HOST")


def _width(name: str, rows: Sequence[tuple[str, HostRow]]) -> int:
    return max(len(name), *(len(_CELLS[row.state(name)]) for _, row in rows))


def _details(rows: Sequence[HostRow], columns: int) -> Iterator[Line]:
    """Give every check of every host, with what was found."""
    for row in rows:
        yield row.host, "plain"
        for entry in row.checks:
            task = f" of {entry.task}" if entry.task else ""
            cell = _CELLS[entry.check.state].ljust(len(_CELLS["failed"]))
            words = f"{cell}  {entry.check.name}{task}: {entry.check.found}"
            yield from _wrapped(words, _GAP, _KINDS[entry.check.state], columns)
    yield "", "plain"


def _problem(problem: Problem, columns: int) -> Iterator[Line]:
    """Give what was found on which hosts, and below it what to do."""
    kind = _KINDS[problem.state]
    yield f"{_CELLS[problem.state]}  {problem.name}", kind
    found = list(problem.found.items())
    for words, places in found[:FOUND_SHOWN]:
        yield from _wrapped(f"{host_names(places)}: {words}", _GAP, kind, columns)
    if len(found) > FOUND_SHOWN:
        more = [place for _, places in found[FOUND_SHOWN:] for place in places]
        yield from _wrapped(f"and {len(more)} more: {host_names(more)}", _GAP, kind, columns)
    if problem.remedy:
        yield from _wrapped(f"-> {problem.remedy}", _GAP, "plain", columns)
    yield "", "plain"


def _wrapped(text: str, indent: str, kind: Kind, columns: int) -> Iterator[Line]:
    if not columns:
        yield f"{indent}{text}", kind
        return
    width = max(columns - 1, FEWEST_COLUMNS_OF_TEXT)
    for line in textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent + _GAP):
        yield line, kind


def _cut(host: str) -> str:
    return host if len(host) <= HOST_CHARACTERS else f"{host[: HOST_CHARACTERS - 3]}..."
