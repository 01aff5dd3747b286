"""A bar chart of the speeds, in the style of a run's report."""

from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.results import BASE, SPEED, Medians
from benchmarks.rows import ROWS, WORKLOADS
from psfleet.report.drawing import INK, PALETTE, WIDTH, as_svg, style

_BAR_HEIGHT, _TITLE_HEIGHT = 0.26, 0.6


def write_picture(path: Path, summaries: Medians) -> None:
    """Write an SVG with a bar for each row of each workload and the range of its rounds. Raises OSError."""
    known = [workload for workload in WORKLOADS if workload.name in summaries]
    heights = [_TITLE_HEIGHT + _BAR_HEIGHT * len(summaries[workload.name]) for workload in known]
    with style():
        figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
        grid = figure.add_gridspec(len(known), 1, height_ratios=heights)
        for place, workload in enumerate(known):
            axes = figure.add_subplot(grid[place])
            rows = [row for row in reversed(ROWS) if row.name in summaries[workload.name]]
            of_row = [summaries[workload.name][row.name] for row in rows]
            speeds = [figures[SPEED] for figures in of_row]
            ranges = [figures["range_of_speed"] for figures in of_row]
            beyond = [
                [middle - least for middle, least, _ in ranges],
                [most - mid for mid, _, most in ranges],
            ]
            colours = [PALETTE[1] if row.name.startswith(BASE) else PALETTE[0] for row in rows]
            axes.barh([row.title for row in rows], speeds, color=colours, xerr=beyond, ecolor=INK, capsize=2)
            axes.grid(visible=False, axis="y")
            axes.set_title(f"{workload.title}: examples per second", loc="left", fontsize=11)
            axes.xaxis.set_major_formatter("{x:,.0f}")
        drawn = as_svg(figure, "benchmark", "Examples per second of each way to train")
    path.write_text(f"{drawn}\n", encoding="utf-8")
