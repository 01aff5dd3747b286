"""What the curves of `make bench-scale` show: tables, where curves bend and why, and a picture."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from benchmarks.figures import Figures
from benchmarks.results import SECONDS, SPEED, seconds_text, table
from benchmarks.rows import CORES, Workload
from psfleet.report.drawing import DASHES, PALETTE, SOFT, WIDTH, as_svg, style
from trainer.host.wording import counted

# A curve bends where each worker brings less than this share of what each worker brought before.
_STRAIGHT = 0.8
# A core or a link counts as used up from this share on: neither is ever in use all the time.
_USED_UP = 0.85
_EXAMPLES = "examples_to_loss"
_NOTHING_USED_UP = "neither cores nor links are used up, so tasks wait for answers"


@dataclass(frozen=True)
class Point:
    """A point of a curve: the medians with `workers` workers (`figures`).

    `worker_cores` and `ps_cores` are the cores that each worker and each ps may use; 0 without ps.
    """

    workers: int
    worker_cores: float
    ps_cores: float
    figures: Figures

    @property
    def name(self) -> str:
        """The number of workers, such as "2 workers"."""
        return counted(self.workers, "worker")


@dataclass(frozen=True)
class Curve:
    """A way to train a workload over links of `megabits` Mbit/s: `points`, by rising numbers of workers.

    `title` is the title of the way (its row). `alone` are the medians of one process with a worker's cores.
    """

    workload: Workload
    title: str
    megabits: int
    points: Sequence[Point]
    alone: Figures

    @property
    def name(self) -> str:
        """The curve in words, without its workload, such as "psfleet, 200 Mbit/s"."""
        return f"{self.title}, {self.megabits:,} Mbit/s"

    def gain(self, point: Point) -> float:
        """Return the examples per second at a point, divided by those of one process."""
        return float(point.figures[SPEED] / self.alone[SPEED])

    def bends(self) -> Iterator[Point]:
        """Yield the points at which the curve bends, by rising numbers of workers.

        There, the gain for each worker is below 80 % of the gain at the last bend, or of 1 before the first
        bend.
        """
        before = 1.0
        for point in self.points:
            each = self.gain(point) / point.workers
            if each < _STRAIGHT * before:
                yield point
                before = each


def exhausted_resources(curve: Curve, point: Point) -> list[str]:
    """Return texts about the cores and links that are at least 85 % in use at a point; [] for none."""
    figures, alone, megabits = point.figures, curve.alone, curve.megabits
    of_worker, of_ps = figures["cores_of_a_worker"], figures.get("cores_of_a_ps", 0.0)
    both_ways = figures["worker_megabits_in"] + figures["worker_megabits_out"]
    ways = {way: figures.get(f"ps_megabits_{way}", 0.0) for way in ("in", "out")}
    busiest = max(ways, key=lambda way: ways[way])
    all_cores = figures["cores_of_all"] + figures["cores_of_others"]
    an_example = point.workers * of_worker / figures[SPEED]
    of_one_process = alone["cores_of_a_worker"] / alone[SPEED]
    reasons = {
        f"a ps uses {of_ps:.2f} of its {point.ps_cores:.2f} core": (
            point.ps_cores and of_ps >= _USED_UP * point.ps_cores
        ),
        f"the link of a ps carries {ways[busiest]:,.0f} of {megabits:,} Mbit/s {busiest}": (
            ways[busiest] >= _USED_UP * megabits
        ),
        f"a worker's bytes, one direction after the other, take {both_ways / megabits:.0%} of its time": (
            both_ways >= _USED_UP * megabits
        ),
        f"a worker uses {of_worker:.2f} of its {point.worker_cores:.2f} core, and "
        f"{an_example / of_one_process:.2f} times the CPU of one process for an example": (
            of_worker >= _USED_UP * point.worker_cores
        ),
        f"all tasks and others use {all_cores:.2f} of this machine's {CORES} cores, which separate machines "
        "would not share": all_cores >= _USED_UP * CORES,
    }
    return [words for words, holds in reasons.items() if holds]


def sentences(curve: Curve) -> str:
    """Return sentences: the gain on a curve, where it bends and why, and the seconds to the loss."""
    first, last = curve.points[0], curve.points[-1]
    gains = " and ".join(
        f"{point.name} {curve.gain(point):.2f} times"
        for point in ([first, last] if first != last else [last])
    )
    texts = [f"**{curve.name}**: {gains} the examples/s of one process."]
    for point in curve.bends():
        why = "; ".join(exhausted_resources(curve, point)) or _NOTHING_USED_UP
        each = curve.gain(point) / point.workers
        texts.append(f"Bend at {point.name} ({each:.2f} for each): {why}.")
    if len(texts) == 1:
        texts.append("No bend.")
    texts.append(_to_the_loss(curve, last))
    return " ".join(texts)


def _to_the_loss(curve: Curve, point: Point) -> str:
    own, alone, loss = point.figures, curve.alone, f"loss {curve.workload.loss:g}"
    if not math.isfinite(own[SECONDS]) or not math.isfinite(alone[SECONDS]):
        own_seconds, of_one = seconds_text(own[SECONDS]), seconds_text(alone[SECONDS])
        return f"Seconds to {loss}: {point.name} {own_seconds}, one process {of_one}."
    seconds, examples = (own[name] / alone[name] for name in (SECONDS, _EXAMPLES))
    return f"To {loss}, {point.name}: {seconds:.2f} of its seconds, with {examples:.2f} times the examples."


def page(machine: Mapping[str, object], settings: Mapping[str, object], curves: Sequence[Curve]) -> str:
    """Return a Markdown page: machine, settings, and for each workload a table and sentences by curve."""
    conditions = [f"{name} {value}" for name, value in {**machine, **settings}.items()]
    parts = [f"# Results of make bench-scale\n\n{', '.join(conditions)}\n"]
    for workload, group in groupby(curves, key=lambda curve: curve.workload):
        of_workload = list(group)
        parts += [_table(workload, of_workload), *(f"- {sentences(curve)}" for curve in of_workload)]
        parts[-1] += "\n"
    return "\n".join(parts)


def _table(workload: Workload, curves: Sequence[Curve]) -> str:
    heads = [
        workload.heading,
        "workers",
        "cores of a worker, used",
        "cores of a ps, used",
        "Mbit/s of a worker in, out",
        "of a ps in, out",
        "examples/s",
        "of one process",
        "for each worker",
        "seconds to the loss",
        "of one process",
        "examples to the loss, of one process",
    ]
    alone = curves[0].alone
    first = ["one process", "", f"{curves[0].points[0].worker_cores:.2f}, {alone['cores_of_a_worker']:.2f}"]
    first += ["", "", "", f"{alone[SPEED]:,.0f}", "", "", seconds_text(alone[SECONDS]), "", ""]
    return table(heads, [first, *(_cells(curve, point) for curve in curves for point in curve.points)])


def _cells(curve: Curve, point: Point) -> list[str]:
    figures, alone = point.figures, curve.alone
    links = {
        job: ", ".join(f"{figures[f'{job}_megabits_{way}']:,.0f}" for way in ("in", "out"))
        if f"{job}_megabits_in" in figures
        else ""
        for job in ("worker", "ps")
    }
    of_ps = f"{point.ps_cores:.2f}, {figures['cores_of_a_ps']:.2f}" if point.ps_cores else ""
    parts = [
        f"{figures[name] / alone[name]:.2f}" if math.isfinite(figures[name] / alone[name]) else ""
        for name in (SECONDS, _EXAMPLES)
    ]
    return [
        curve.name,
        f"{point.workers}",
        f"{point.worker_cores:.2f}, {figures['cores_of_a_worker']:.2f}",
        of_ps,
        links["worker"],
        links["ps"],
        f"{figures[SPEED]:,.0f}",
        f"{curve.gain(point):.2f}",
        f"{curve.gain(point) / point.workers:.2f}",
        seconds_text(figures[SECONDS]),
        *parts,
    ]


def picture(curves: Sequence[Curve]) -> str:
    """Return an SVG, as text, with two charts for each workload: speed, and seconds to the loss.

    A chart has a line for each curve, by number of workers, and a dashed line for the ideal.
    """
    of_workloads = [list(group) for _, group in groupby(curves, key=lambda curve: curve.workload)]
    names = list(dict.fromkeys(curve.name for curve in curves))
    colours = {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(names)}
    with style():
        figure = Figure(figsize=(WIDTH, 2.4 * len(of_workloads) + 0.5), layout="constrained")
        grid = figure.add_gridspec(len(of_workloads), 2)
        lines: dict[str, Line2D] = {}
        for place, of_workload in enumerate(of_workloads):
            workload, alone = of_workload[0].workload, of_workload[0].alone
            counts = sorted({1, *(point.workers for curve in of_workload for point in curve.points)})
            ideals = {
                SPEED: [count * alone[SPEED] for count in counts],
                SECONDS: [alone[SECONDS] / count for count in counts],
            }
            titles = {SPEED: f"{workload.title}: examples/s", SECONDS: f"seconds to loss {workload.loss:g}"}
            for column, (name, title) in enumerate(titles.items()):
                axes = figure.add_subplot(grid[place, column])
                (lines["ideal"],) = axes.plot(counts, ideals[name], color=SOFT, linestyle=DASHES[2])
                for curve in of_workload:
                    own = [point.workers for point in curve.points]
                    values = [point.figures[name] for point in curve.points]
                    (lines[curve.name],) = axes.plot(own, values, color=colours[curve.name], marker="o")
                _scale(axes, counts, title)
        figure.legend(list(lines.values()), list(lines), loc="outside lower center", ncols=2)
        return str(as_svg(figure, "scaling", "Examples per second and seconds to the loss by workers"))


def _scale(axes: Axes, counts: Sequence[int], title: str) -> None:
    axes.set(xscale="log", xlabel="workers")
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_title(title, loc="left", fontsize=11)
    if not any(np.isfinite(np.asarray(line.get_ydata(), np.float64)).any() for line in axes.lines):
        axes.set_yticks([])  # as long as no run has reached the loss
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_minor_locator(NullLocator())
