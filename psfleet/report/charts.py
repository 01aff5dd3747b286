"""Draws the charts of the report with matplotlib from the numbers of series.py and timeline.py."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from psfleet.evidence.answer import size
from psfleet.report.drawing import DASHES, INK, PALETTE, SOFT, label, new_figure, new_figures
from psfleet.report.number_format import number, thin_out
from psfleet.report.series import Curves, Line
from psfleet.report.timeline import Lane

_LINE_CHART_HEIGHT, _METRIC_HEIGHT = 3.4, 2.2
# If the highest loss is at least this many times the lowest, the scale is logarithmic.
_LOG_FROM = 20.0
MOST_BARS = 24
MOST_RESTORED = 12
MOST_NOT_FINITE = 200
_BAND = "#56b4e9"
_MARKS = {  # event: marker, colour, words
    "peers_ready": ("|", INK, "passed the barrier"),
    "checkpointed": (".", "#0072b2", "checkpoint"),
    "checkpoint_failed": ("x", "#d55e00", "checkpoint failed"),
    "checkpoint_damaged": ("x", "#e69f00", "checkpoint damaged"),
    "checkpoint_copy_failed": ("x", "#999999", "copy of a checkpoint failed"),
    "checkpoint_fetched": (".", "#009e73", "copy of a checkpoint fetched"),
    "recovering": ("v", "#d55e00", "lost the cluster"),
    "restored": ("^", "#009e73", "restored"),
    "ps_restored": ("^", "#56b4e9", "a ps restored its part alone"),
    "evaluated": ("D", "#cc79a7", "evaluated"),
    "finished": ("s", INK, "ended"),
    "failed": ("X", "#d55e00", "failed"),
}


def loss_chart(
    curves: Curves,
    restored: Sequence[int],
    not_finite: Sequence[float],
    target: float | None,
) -> Figure:
    """Return the chart of the loss over the global step; its scale is logarithmic if the loss falls far.

    Far is to a twentieth or less, without losses of 0 or below. `restored` are global steps of restored
    checkpoints, `not_finite` the global steps of losses that were not finite. `target` is the loss to reach,
    None if there is none.
    """
    figure, axes = _curves_figure(curves, more=bool(target or restored or not_finite))
    values = curves.values
    logarithmic = bool(values) and min(values) > 0 and max(values) / min(values) >= _LOG_FROM
    if logarithmic:
        axes.set_yscale("log")
        decades = math.log10(max(values) / min(values))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2.5 else (1,), numticks=12))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    if target is not None and target > 0:
        axes.axhline(target, color=SOFT, linestyle=(0, (4, 2)), linewidth=1, label="target loss")
    for place, step in enumerate(restored[:MOST_RESTORED]):
        words = "checkpoint restored" if place == 0 else None
        axes.axvline(step, color="#007a59", linestyle=(0, (6, 1.5)), linewidth=1.3, label=words)
    if not_finite:
        x = thin_out(not_finite, MOST_NOT_FINITE)
        at_the_bottom: dict[str, Any] = {"transform": axes.get_xaxis_transform()}
        axes.plot(x, [0.02] * len(x), "x", color="#d55e00", label="not a finite number", **at_the_bottom)
    axes.set_xlabel("global step")
    axes.set_ylabel(f"loss{' (logarithmic)' if logarithmic else ''}")
    _plain(axes, "x" if logarithmic else "both")
    return _with_legend(figure)


def evaluation_chart(
    lines: Sequence[Line], goals: Mapping[str, Sequence[float]], ends: Mapping[str, float]
) -> Figure:
    """Return one figure with a chart for each metric over the global step, one below the other.

    `lines` has a line for each metric, `goals` is {metric: its bounds in the verdict}, `ends` is {metric: the
    bound that ends the run}.
    """
    figure, every = new_figures(len(lines), _METRIC_HEIGHT)
    for axes, line in zip(every, lines, strict=True):
        x, y = zip(*line.points, strict=True)
        axes.plot(x, y, ".-", color=PALETTE[0], markersize=4)
        for place, bound in enumerate(goals.get(line.name, ())):
            words = None if place else "goal of the verdict"
            axes.axhline(bound, color="#007a59", linestyle=(0, (4, 2)), linewidth=1, label=words)
        if line.name in ends:
            axes.axhline(ends[line.name], color="#d55e00", linewidth=1, label="ends the run")
        axes.set_ylabel(label(line.name.replace("_", " ")))
        _plain(axes, "both")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="best")
    every[-1].set_xlabel("global step")
    return figure


def rate_chart(curves: Curves, beginning: str) -> Figure:
    """Return the chart of each worker's steps per second over its own seconds.

    `beginning` says in words where the seconds start, such as "the barrier".
    """
    figure, axes = _curves_figure(curves, more=False)
    axes.set_xlabel(f"seconds since {beginning}")
    axes.set_ylabel("local steps per second")
    axes.set_ylim(bottom=0)
    _plain(axes, "both")
    return _with_legend(figure)


def share_chart(shares: Sequence[tuple[str, float]], least: float) -> Figure:
    """Return the chart of each worker's share of all gradients, with the equal and the least fair share.

    `shares` are (worker, share from 0 to 1), at least one. The least fair share is the equal share times
    `least`, from 0 to 1.
    """
    equal = 1 / len(shares)
    few = len(shares) <= MOST_BARS
    across: Any
    along: Any
    if few:
        names = [f"{label(name)}  {share:.1%}" for name, share in shares]
        figure, axes = _bars(names, [share for _, share in shares])
        axes.set_xlabel("share of all gradients")
        across, along = axes.axvline, axes.xaxis
    else:
        figure, axes = new_figure(_LINE_CHART_HEIGHT)
        edges = [place - 0.5 for place in range(len(shares) + 1)]
        axes.stairs([share for _, share in shares], edges, fill=True, color=PALETTE[0], alpha=0.75)
        axes.set_xlabel("index of the worker")
        axes.set_ylabel("share of all gradients")
        axes.margins(x=0.01)
        across, along = axes.axhline, axes.yaxis
    across(equal, color=INK, linewidth=1.2, label=f"equal share, {equal:.{1 if few else 2}%}")
    fair: dict[str, Any] = {"linestyle": (0, (4, 2)), "linewidth": 1.2, "label": "least fair share"}
    across(least * equal, color="#d55e00", **fair)
    along.set_major_formatter(f"{{x:.{0 if few else 2}%}}")
    return _with_legend(figure)


def staleness_chart(buckets: Sequence[tuple[str, int]]) -> Figure:
    """Return the chart of the gradients' staleness: how many steps of others came before they were applied.

    `buckets` are (staleness such as "2-3", number of gradients); the bars show shares of all gradients.
    """
    figure, axes = new_figure(_LINE_CHART_HEIGHT)
    total = sum(count for _, count in buckets) or 1
    bars = axes.bar(range(len(buckets)), [count / total for _, count in buckets], color=PALETTE[0], width=0.8)
    axes.bar_label(bars, [_percent(count / total) for _, count in buckets], fontsize=8, color=SOFT)
    turned: dict[str, Any] = {"rotation": 45, "ha": "right"} if len(buckets) > 8 else {}
    axes.set_xticks(range(len(buckets)), [name for name, _ in buckets], **turned)
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("steps of others before the gradient was applied")
    axes.set_ylabel("share of the gradients")
    axes.yaxis.set_major_formatter("{x:.0%}")
    return figure


def balance_chart(balance: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Return the chart of the bytes of variables on each ps, of at most 24 ps.

    `balance` is `ps` of the figures.
    """
    drawn = list(balance.items())[:MOST_BARS]
    words = [f"{size(held['bytes'])}, {number(held['variables'])} variables" for _, held in drawn]
    figure, axes = _bars([label(name) for name, _ in drawn], [held["bytes"] for _, held in drawn], words)
    axes.margins(x=0.35)
    axes.set_xlabel("bytes of variables")
    axes.xaxis.set_major_formatter(lambda value, _: size(int(value)))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    return figure


def timeline_chart(lanes: Sequence[Lane], beginning: str) -> Figure:
    """Return the chart of each task's processes, as bars, and events, as marks, over the task's own time.

    `beginning` says in words where the seconds start. Only the events in _MARKS are drawn.
    """
    figure, axes = new_figure(1.3 + 0.26 * len(lanes))
    for place, lane in enumerate(lanes):
        for begin, end in lane.lives:
            axes.plot([begin, end], [place, place], color="#b8cfe0", linewidth=7, solid_capstyle="butt")
        for begin, end in lane.lost:
            axes.plot([begin, end], [place, place], color="#b8cfe0", linewidth=1.2)
    for event, (marker, colour, words) in _MARKS.items():
        places = [(at, place) for place, lane in enumerate(lanes) for name, at in lane.marks if name == event]
        if places:
            x, y = zip(*places, strict=True)
            marker_size = 9 if marker == "|" else 5
            axes.plot(x, y, marker, color=colour, markersize=marker_size, label=words, clip_on=False)
    axes.set_yticks(range(len(lanes)), [label(lane.name) for lane in lanes])
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"seconds since {beginning}")
    _plain(axes, "x")
    return _with_legend(figure)


def _curves_figure(curves: Curves, *, more: bool) -> tuple[Figure, Axes]:
    """Return a chart with a line for each of `curves.lines`, and with the band if there is one.

    With `more`, the chart has room for more entries in the legend.
    """
    figure, axes = new_figure(_LINE_CHART_HEIGHT + 0.2 * math.ceil((len(curves.lines) + 2 * more) / 4))
    if band := curves.band:
        words = f"range of {curves.workers} workers"
        axes.fill_between(band.x, band.low, band.high, color=_BAND, alpha=0.35, linewidth=0, label=words)
        axes.plot(band.x, band.middle, color=PALETTE[0], linewidth=1.6, label="their median")
    for line in curves.lines:
        x, y = zip(*line.points, strict=True)
        colour = PALETTE[line.place % len(PALETTE)]
        dashes = DASHES[line.place // len(PALETTE) % len(DASHES)]
        axes.plot(x, y, color=colour, linestyle=dashes, label=label(line.name), alpha=0.9)
    return figure, axes


def _bars(names: Sequence[str], values: Sequence[float], words: Sequence[str] = ()) -> tuple[Figure, Axes]:
    figure, axes = new_figure(1.2 + 0.25 * len(names))
    shape: dict[str, Any] = {"height": 0.7 if len(names) > 1 else 0.4, "color": PALETTE[0], "alpha": 0.8}
    drawn = axes.barh(range(len(names)), values, tick_label=names, **shape)
    axes.bar_label(drawn, words or [""] * len(names), padding=3, fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.grid(visible=False, axis="y")
    return figure, axes


def _plain(axes: Axes, which: Literal["x", "both"]) -> None:
    """Make the axes show numbers in full: matplotlib's exponents above an axis are easily overlooked.

    `which` is "x" for the x axis alone, or "both".
    """
    for axis in (axes.xaxis, axes.yaxis)[: 1 if which == "x" else 2]:
        axis.set_major_formatter(_tick)
        axis.set_major_locator(MaxNLocator(6))


def _tick(value: float, _place: float) -> str:
    for unit, word in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= unit:
            return f"{value / unit:g}{word}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def _percent(share: float) -> str:
    if 0 < share < 0.0005:
        return "<0.1%"
    return f"{share:.0%}" if share >= 0.1 or share == 0 else f"{share:.1%}"


def _with_legend(figure: Figure) -> Figure:
    handles, words = figure.axes[0].get_legend_handles_labels()
    if handles:
        columns = max(1, min(len(words), 60 // (max(map(len, words)) + 6)))
        figure.legend(handles, words, loc="outside lower center", ncols=columns, columnspacing=1.2)
    return figure
