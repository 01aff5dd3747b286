"""Draws what doctor.yml shows: the table of hosts and checks, the problems with remedies, and a summary."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import RenderableType
from rich.table import Table

from psfleet.watch.console import PlaybookConsole, empty_table
from psfleet.watch.doctor_findings import CHECKS, GROUPS, Findings, HostRow, Trouble
from trainer.host.check import State
from trainer.host.wording import cut, first_of

# With more hosts, adjacent hosts with the same states share a row.
MOST_ROWS = 20
FOUND_SHOWN = 10
HOST_CHARACTERS = 40
_CELLS: dict[State | None, str] = {
    "ok": "ok",
    "warning": "warn",
    "failed": "FAILED",
    "skipped": "-",
    None: "-",
}
_STYLES: dict[State, str] = {"ok": "good", "warning": "warning", "failed": "bad", "skipped": "plain"}

# (title of the row, one of its hosts)
Rows = Sequence[tuple[str, HostRow]]


def doctor_table(
    findings: Findings, console: PlaybookConsole, *, verbose: bool = False
) -> Iterator[RenderableType]:
    """Yield the tables of hosts and checks, then problems with their remedies, notes, and the summary.

    With `verbose`, the finding of every check follows the tables. A table that is wider than the console is
    divided into several, one below the other. If `findings.failure` is set, the summary is left out, because
    the caller shows it as the failure.
    """
    rows = _folded(findings.rows, findings.names)
    for names in _parts(rows, findings.names, console):
        yield _table(rows, names, console)
        yield ""
    if verbose:
        for row in findings.rows:
            yield from _details(row, console)
        yield ""
    for trouble in findings.troubles:
        yield from _trouble(trouble, console)
    yield from (console.words(note, "warning") for note in findings.notes)
    if not findings.failure:  # it repeats the summary
        yield console.words(findings.summary, "warning" if findings.troubles else "good")


def _folded(rows: Sequence[HostRow], names: Sequence[str]) -> Rows:
    """Return (title, row) for each host; with many hosts, for each group of adjacent hosts with equal states.

    The row of a group is its first host's. A title of a group: "node1 .. node9 (9 hosts)".
    """
    if len(rows) <= MOST_ROWS:
        return [(cut(row.host, HOST_CHARACTERS), row) for row in rows]
    folded = []
    for _, alike in groupby(rows, lambda row: [bool(row.problem), *map(row.state, names)]):
        group = list(alike)
        first, last = (cut(row.host, HOST_CHARACTERS) for row in (group[0], group[-1]))
        folded.append((first if len(group) == 1 else f"{first} .. {last} ({len(group)} hosts)", group[0]))
    return folded


def _parts(rows: Rows, names: Sequence[str], console: PlaybookConsole) -> list[list[str]]:
    """Return the names of the columns in lists; each list is a table that fits the console.

    The columns are divided between two groups of `GROUPS`, or within a group that is itself too wide.
    """

    def fit(names: Sequence[str]) -> bool:
        return console.width_of(_table(rows, names, console)) <= console.width

    parts: list[list[str]] = [[]]
    for group in (*GROUPS, set(names) - set(CHECKS)):
        together = [name for name in names if name in group]
        for piece in [together] if fit(together) else [[name] for name in together]:
            if parts[-1] and not fit([*parts[-1], *piece]):
                parts.append([])
            parts[-1] += piece
    return parts


def _table(rows: Rows, names: Sequence[str], console: PlaybookConsole) -> Table:
    table = empty_table()
    for heading in ("host", *names):
        table.add_column(console.words(heading.upper()), no_wrap=heading != "host")
    for title, row in rows:
        cells = ["not reached"] if row.problem else [_CELLS[row.state(name)] for name in names]
        table.add_row(*map(console.words, [title, *cells]), style=_STYLES[row.state(*names) or "skipped"])
    return table


def _details(row: HostRow, console: PlaybookConsole) -> Iterator[RenderableType]:
    """Yield the host's name, then one line for each of its checks, with its finding."""
    yield console.words(row.host)
    for check in row.checks:
        of_task = f" of {check.task}" if check.task else ""
        words = f"{_CELLS[check.state]:<6}  {check.name}{of_task}: {check.found}"
        yield console.indented(words, _STYLES[check.state])


def _trouble(trouble: Trouble, console: PlaybookConsole) -> Iterator[RenderableType]:
    """Yield lines about a problem: its state and name, its findings with their hosts, and the remedy.

    An empty line follows.
    """
    style = _STYLES[trouble.state]
    yield console.words(f"{_CELLS[trouble.state]}  {trouble.name}", style)
    found = list(trouble.found.items())
    for words, places in found[:FOUND_SHOWN]:
        yield console.indented(f"{first_of(places)}: {words}", style)
    if more := [place for _, places in found[FOUND_SHOWN:] for place in places]:
        yield console.indented(f"and {len(more)} more: {first_of(more)}", style)
    if trouble.remedy:
        yield console.indented(f"-> {trouble.remedy}")
    yield ""
