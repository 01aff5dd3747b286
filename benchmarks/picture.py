"""Bar charts of the speeds and of the seconds to the loss, in the style of a run's report."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.figures import Figures
from benchmarks.results import SECONDS, SPEED, Medians
from benchmarks.rows import ROWS, WORKLOADS, Row
from psfleet.report.drawing import INK, PALETTE, WIDTH, as_svg, style

_BAR_HEIGHT, _TITLE_HEIGHT = 0.26, 0.8
_OWN = "psfleet"


def write_picture(path: Path, summaries: Medians) -> None:
    """Write an SVG with bars for each row of each workload: its speed, and its seconds to the loss.

    Each bar shows the range over the rounds, too. Raises OSError.
    """
    known = [workload for workload in WORKLOADS if workload.name in summaries]
    heights = [_TITLE_HEIGHT + _BAR_HEIGHT * len(summaries[workload.name]) for workload in known]
    with style():
        figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
        parts = figure.subfigures(len(known), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, workload in zip(parts, known, strict=True):
            part.suptitle(workload.title, x=0.01, horizontalalignment="left", fontsize=11)
            rows = [row for row in reversed(ROWS) if row.name in summaries[workload.name]]
            of_row = [summaries[workload.name][row.name] for row in rows]
            speeds, seconds = part.subplots(1, 2, sharey=True)
            _bars(speeds, rows, of_row, SPEED, "range_of_speed")
            speeds.set_title("examples/s", loc="left", fontsize=10)
            _bars(seconds, rows, of_row, SECONDS, "range_of_seconds")
            seconds.set_title(f"seconds to loss {workload.loss:g}", loc="left", fontsize=10)
        title = "Examples per second and seconds to the loss of each way to train"
        drawn = as_svg(figure, "benchmark", title)
    path.write_text(f"{drawn}\n", encoding="utf-8")


def _bars(axes: Axes, rows: Sequence[Row], of_row: Sequence[Figures], name: str, spread: str) -> None:
    """Draw a bar for each row, and its range; a value that is not finite has no bar.

    `name` and `spread` are the names of the figures with the value and with the range (least, middle, most);
    an infinite `most` is not drawn.
    """
    values = [figures[name] if math.isfinite(figures[name]) else 0.0 for figures in of_row]
    ranges = [figures[spread] if value else [0.0] * 3 for value, figures in zip(values, of_row, strict=True)]
    beyond = [
        [middle - least for middle, least, _ in ranges],
        [most - middle if math.isfinite(most) else 0.0 for middle, _, most in ranges],
    ]
    colours = [PALETTE[1] if row.name.startswith(_OWN) else PALETTE[0] for row in rows]
    axes.barh([row.title for row in rows], values, color=colours, xerr=beyond, ecolor=INK, capsize=2)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(2))
    axes.xaxis.set_major_formatter("{x:,.0f}")
