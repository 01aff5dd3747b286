"""Computes the numbers that the charts draw, from a run's records and the verdict's figures."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from psfleet.evidence.clocks import LARGEST, own_seconds
from psfleet.evidence.convergence import metrics_of
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.task_records import TaskRecords, Window

# Up to this many workers have a line each; more are drawn as a median and a range.
MOST_LINES = 12
MOST_NAMED = 5
_BINS = 120
# A program may record every step; longer lines are averaged down to about this many points.
_MOST_POINTS = 600
_BREAK = (math.nan, math.nan)

Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One curve: points (x, y) in order. A point of nan breaks the line.

    `name` is that of the worker or the metric. `place` is the index of the line among all lines; it decides
    the colour.
    """

    name: str
    points: Sequence[Point]
    place: int = 0


@dataclass(frozen=True)
class Band:
    """All workers together: for each x, the lowest, median and highest of the workers' mean values there.

    All four sequences have the same length.
    """

    x: Sequence[float]
    low: Sequence[float]
    middle: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Curves:
    """A line for each worker; for many workers, their `band`, and lines only for a few notable workers.

    Up to 12 workers, `band` is None. `workers` is the number of workers that have points.
    """

    lines: Sequence[Line]
    band: Band | None = None
    workers: int = 0

    @property
    def values(self) -> tuple[float, ...]:
        """Every finite y of the lines, then the lowest and the highest y of the band."""
        lines = [y for line in self.lines for _, y in line.points if math.isfinite(y)]
        return (*lines, *((*self.band.low, *self.band.high) if self.band else ()))


def notable_workers(run: Run, figures: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the workers that deserve own lines: stragglers, failed, restarted workers.

    They are in this order, each once, at most MOST_NAMED (5); () if there are none. `figures` is the result
    of `figures_of`.
    """
    stragglers = [str(name) for name in figures.get("stragglers") or ()]
    failed = [worker.name for worker in run.with_lost if worker.ending and worker.ending.event == "failed"]
    again = sorted(
        (worker for worker in run.with_lost if worker.restarts), key=lambda worker: -worker.restarts
    )
    names = dict.fromkeys([*stragglers, *failed, *(worker.name for worker in again)])
    return tuple(names)[:MOST_NAMED]


def loss_curves(run: Run, named: Sequence[str]) -> Curves:
    """Return the curves of the workers' mean loss per window, over the global step after the window.

    A line breaks where the global step went back or a session broke. Losses that are not finite are left out;
    `losses_not_finite` returns their steps. Of more than 12 workers, only those in `named` get a line.
    """
    return _curves([Line(worker.name, _loss_points(worker)) for worker in run.with_lost], named)


def evaluations(run: Run) -> dict[str, Line]:
    """Return {metric: line of its values over the global step}; {} if there was at most one evaluation.

    The evaluator's evaluations count. A line breaks where the run went on from an earlier step. Metrics that
    never change are left out, and so are values that are not finite.
    """
    found = run.evaluator.of("evaluated")
    points: dict[str, list[Point]] = defaultdict(list)
    before = -1
    for step, metrics in ((record.integer("global_step"), metrics_of(record)) for record in found):
        for name, value in metrics.items():
            if step < before:
                points[name].append(_BREAK)
            if _drawable(step) and _drawable(value):
                points[name].append((float(step), value))
        before = step
    lines = {name: _smooth(Line(name, of)) for name, of in points.items() if len({y for _, y in of}) > 1}
    return lines if len(found) > 1 else {}


def rate_curves(run: Run, named: Sequence[str]) -> Curves:
    """Return the curves of the workers' steps per second, over each worker's own seconds.

    Each window is a level piece of the line; the line breaks where a process starts or a session broke. Of
    more than 12 workers, only those in `named` get a line.
    """
    return _curves([Line(worker.name, _rate_points(worker)) for worker in run.with_lost], named)


def losses_not_finite(run: Run) -> tuple[int, ...]:
    """Return the sorted global steps, each once, of the windows whose last or mean loss was not finite."""
    losses = [(window.after, loss) for window in run.windows for loss in (window.loss, window.loss_mean)]
    steps = {step for step, loss in losses if loss is not None and not math.isfinite(loss)}
    return tuple(sorted(step for step in steps if _drawable(step)))


def restored_steps(run: Run) -> list[int]:
    """Return the global steps of the restored checkpoints, in the order of the chief's records."""
    steps = [record.integer("global_step") for record in run.chief.of("restored")]
    return [step for step in steps if _drawable(step)]


def shares(figures: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return (worker, its share of all contributions, 0 to 1) for each worker; [] if nobody contributed.

    `figures` is the result of `figures_of`; its order is kept, and lost workers are included.
    """
    worker_shares = [(name, worker["share"]) for name, worker in figures["workers"].items()]
    return worker_shares if any(share for _, share in worker_shares) else []


def staleness_buckets(figures: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return (staleness, number of gradients) for each place of the histogram.

    The places are "0", "1", "2-3", "4-7", "8-15" and so on. Return () if staleness is
    unknown. `figures` is the result of `figures_of`.
    """
    histogram = (figures.get("staleness") or {}).get("histogram", ())
    return tuple(
        (f"{place}" if place < 2 else f"{2 ** (place - 1)}-{2**place - 1}", count)
        for place, count in enumerate(histogram)
    )


def _drawable(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= LARGEST


def _loss_points(worker: TaskRecords) -> list[Point]:
    points: list[Point] = []
    for process in worker.processes:
        for stretch in process.stretches:
            losses = [(float(window.after), window.loss_mean) for window in stretch]
            points += [(x, y) for x, y in losses if y is not None and _drawable(x) and _drawable(y)]
            points.append(_BREAK)
    return points


def _rate_points(worker: TaskRecords) -> list[Point]:
    points: list[Point] = []
    for record, end in own_seconds(worker):
        if record.event in {"started", "recovering", "peers_ready"}:
            points.append(_BREAK)
        if record.event == "step":
            window = Window.of(record)
            if _drawable(window.seconds) and window.seconds > 0 and _drawable(window.steps):
                rate = window.steps / window.seconds
                points += [(end - window.seconds, rate), (end, rate)]
    return points


def _curves(lines: Sequence[Line], named: Sequence[str]) -> Curves:
    placed = [replace(line, place=place) for place, line in enumerate(lines)]
    drawn = [line for line in placed if any(math.isfinite(y) for _, y in line.points)]
    if len(drawn) <= MOST_LINES:
        return Curves([_smooth(line) for line in drawn], workers=len(drawn))
    few = [line for line in drawn if line.name in named]
    # The median has the first colour.
    few = [_smooth(replace(line, place=place)) for place, line in enumerate(few, start=1)]
    return Curves(few, _band(drawn), len(drawn))


def _smooth(line: Line) -> Line:
    """Return the line with at most about 600 points; each is the mean of a group of points.

    A shorter line is returned unchanged. A break within a group comes after the group's mean.
    """
    group = math.ceil(len(line.points) / _MOST_POINTS)
    if group == 1:
        return line
    points: list[Point] = []
    for start in range(0, len(line.points), group):
        together = line.points[start : start + group]
        finite = [point for point in together if math.isfinite(point[0])]
        if finite:
            points.append((fmean(x for x, _ in finite), fmean(y for _, y in finite)))
        if len(finite) < len(together):
            points.append(_BREAK)
    return replace(line, points=points)


def _band(lines: Iterable[Line]) -> Band:
    """Return the band of the lines: in each of 120 equal parts of x, range and median of the lines' means.

    Parts without any point are left out. At least one point must be finite.
    """
    finite = [[point for point in line.points if math.isfinite(point[1])] for line in lines]
    every = [x for points in finite for x, _ in points]
    first, last = min(every), max(every)
    width = (last - first) / _BINS or 1.0
    bins: dict[int, list[float]] = defaultdict(list)
    for points in finite:
        own: dict[int, list[float]] = defaultdict(list)
        for x, y in points:
            own[min(int((x - first) / width), _BINS - 1)].append(y)
        for place, values in own.items():
            bins[place].append(fmean(values))
    places = sorted(bins)
    return Band(
        x=tuple(first + (place + 0.5) * width for place in places),
        low=tuple(min(bins[place]) for place in places),
        middle=tuple(median(bins[place]) for place in places),
        high=tuple(max(bins[place]) for place in places),
    )
