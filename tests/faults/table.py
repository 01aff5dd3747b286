"""The table of faults as a page and as a picture."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from psfleet.report.drawing import PALETTE, WIDTH, as_svg, style
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
        "![Seconds until each fault was told and until training went on](fault-table.svg)",
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


def picture(found: Mapping[str, Outcome]) -> str:
    """Return an SVG with the seconds of each fault until it was told, and until training went on."""
    rows = [row for row in reversed(ROWS) if row.number in found]
    with style():
        figure = Figure(figsize=(WIDTH, 1.0 + 0.3 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        places = range(len(rows))
        until_training = [found[row.number].seconds_until_training or 0.0 for row in rows]
        axes.barh(places, until_training, color=PALETTE[0], height=0.6, label="training goes on")
        told = [(place, found[row.number].seconds_until_told) for place, row in enumerate(rows)]
        seen = [(place, at) for place, at in told if at is not None]
        axes.plot([at for _, at in seen], [place for place, _ in seen], "o", color=PALETTE[1], label="told")
        axes.set_yticks(places, [f"{row.what}  {row.number}" for row in rows], fontsize=8)
        axes.set_xlabel("seconds after the fault")
        axes.grid(visible=False, axis="y")
        axes.legend(loc="lower right")
        return str(as_svg(figure, "faults", "Seconds until each fault was told and until training went on"))
