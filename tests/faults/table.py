"""The table of faults as a page."""

from collections.abc import Mapping

from tests.faults.outcome import Outcome
from tests.faults.rows import NOT_HERE, ROWS, Row

_MEANINGS = (
    "Each row is a run of its own: `mnist_mlp`, asynchronous, 1 ps and 2 workers on three container hosts,",
    "20,000 steps, with the fault at a random step between 3,000 and 9,000. Seconds are counted from the",
    "fault: *told* is the first line of `train.yml` that names what was hit; *trains* is the first step of a",
    "new process in place of one that the fault ended, by the records. Steps lost were computed, and then",
    "undone by restoring a checkpoint.",
)


def in_words(row: Row, outcome: Outcome) -> str:
    """Return a line about a row."""
    told = seconds(outcome.seconds_until_told)
    parts = [f"told after {told}", f"training after {seconds(outcome.seconds_until_training)}"]
    parts += [f"{outcome.steps_lost} steps lost", outcome.verdict, *outcome.left_over]
    return f"{row.number:9}{row.what}: {', '.join(parts)} ({outcome.headline})"


def seconds(value: float | None) -> str:
    """Return seconds with one decimal, "-" for none."""
    return "-" if value is None else f"{value:.1f} s"


def page(machine: Mapping[str, object], seed: int, found: Mapping[str, Outcome]) -> str:
    """Return the page of all rows."""
    of_machine = ", ".join(f"{name} {value}" for name, value in machine.items())
    lines = [
        "# Faults",
        "",
        f"Written by `make faults`, seed {seed}; {of_machine}.",
        "",
        *_MEANINGS,
        "",
        "| fault | | told after | trains after | steps lost | verdict | left over |",
        "| --- | --- | ---: | ---: | ---: | --- | --- |",
    ]
    for row in ROWS:
        if (outcome := found.get(row.number)) is None:
            continue
        ok = "" if not outcome.wrong(row.verdict, told=bool(row.told)) else f" (**expected: {row.verdict}**)"
        cells = (
            row.number,
            row.what,
            seconds(outcome.seconds_until_told),
            seconds(outcome.seconds_until_training),
            f"{outcome.steps_lost:,}",
            outcome.verdict + ok,
            ", ".join(outcome.left_over) or "nothing",
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Not injected here:", "", *(f"- {fault}: {where}" for fault, where in NOT_HERE.items()), ""]
    return "\n".join(lines)
