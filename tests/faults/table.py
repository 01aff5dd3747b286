"""The table of faults as a page and as a picture."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from matplotlib.figure import Figure

from psfleet.report.drawing import PALETTE, WIDTH, as_svg, style
from tests.faults.outcome import Outcome
from tests.faults.rows import ROWS, Row

_MEANINGS = (
    "Each row is a run of its own: `mnist_mlp`, asynchronous, 1 ps and 2 workers on three container hosts,",
    "20,000 steps, with the fault at a random step between 3,000 and 9,000. Seconds count from the fault:",
    "",
    "- *told*: until `train.yml` first prints the name of the lost task or host; - if it prints none.",
    "- *trains*: until the first step of the restarted process; if no process ended, until the first step",
    "  after the fault.",
    "- *steps lost*: global steps that a restored checkpoint undid.",
    "",
    "The verdict's cell also names each process that was left over on the hosts.",
)
_IN_THE_JSON_ALONE = {"commit", "load", "when", "seed"}


def in_words(row: Row, outcome: Outcome) -> str:
    """Return a line about a row."""
    told = seconds(outcome.seconds_until_told)
    parts = [f"told after {told}", f"training after {seconds(outcome.seconds_until_training)}"]
    parts += [f"{outcome.steps_lost} steps lost", outcome.verdict, *outcome.left_over]
    return f"{row.number:11}{row.what}: {', '.join(parts)} ({outcome.headline})"


def seconds(value: float | None) -> str:
    """Return seconds with one decimal, "-" for none."""
    return "-" if value is None else f"{value:.1f} s"


def page(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page of all rows that were tried, by number of the fault, as in the JSON."""
    machines = [of_row["tried_on"] for of_row in rows.values()]
    shown = [name for name in machines[0] if name not in _IN_THE_JSON_ALONE]
    facts = {name: dict.fromkeys(str(machine[name]) for machine in machines) for name in shown}
    of_machines = "; ".join(f"{name} {', '.join(values)}" for name, values in facts.items())
    lines = [
        "# Faults",
        "",
        f"What each fault costs. Written by `make faults`: {of_machines}.",
        "[fault-table.json](fault-table.json) has the time, the commit, the load and the seed of each row.",
        "",
        "![Seconds until each fault was told and until training went on](fault-table.svg)",
        "",
        *_MEANINGS,
        "",
        "| fault | | told | trains | steps lost | verdict |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for row, outcome in _tried(rows):
        ok = "" if not outcome.wrong(row.verdict, told=bool(row.told)) else f" (**expected: {row.verdict}**)"
        cells = (
            row.number,
            row.what,
            seconds(outcome.seconds_until_told),
            seconds(outcome.seconds_until_training),
            f"{outcome.steps_lost:,}",
            "; left over: ".join([outcome.verdict + ok, *outcome.left_over]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "[rows.py](../tests/faults/rows.py) also lists faults that other tests inject.",
        "",
    ]
    return "\n".join(lines)


def picture(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return an SVG with the seconds of each fault until it was told, and until training went on."""
    tried = [(row, outcome) for row, outcome in reversed(_tried(rows)) if row.hit or row.told]
    with style():
        figure = Figure(figsize=(WIDTH, 1.0 + 0.42 * len(tried)), layout="constrained")
        axes = figure.add_subplot()
        for place, (row, outcome) in enumerate(tried):
            if outcome.seconds_until_training is not None:
                axes.barh(place - 0.15, outcome.seconds_until_training, color=PALETTE[0], height=0.35)
            if outcome.seconds_until_told is not None:
                axes.plot(outcome.seconds_until_told, place - 0.15, "o", color=PALETTE[1])
            axes.annotate(row.what, (0, place + 0.14), xytext=(3, 0), textcoords="offset points", fontsize=8)
        axes.set_yticks(range(len(tried)), [row.number for row, _ in tried], fontsize=8)
        axes.set_xlabel("seconds until it is told (dot) and training goes on (bar)", fontsize=9)
        axes.grid(visible=False, axis="y")
        return str(as_svg(figure, "faults", "Seconds until each fault was told and until training went on"))


def _tried(rows: Mapping[str, Mapping[str, Any]]) -> list[tuple[Row, Outcome]]:
    names = [each.name for each in fields(Outcome)]
    return [
        (row, Outcome(**{name: rows[row.number][name] for name in names}))
        for row in ROWS
        if row.number in rows
    ]
