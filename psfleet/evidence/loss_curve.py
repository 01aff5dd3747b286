"""The losses of all workers of a run, by global step, and how they moved beyond their noise.

Losses are smoothed by medians over bins of windows. A median ignores a few outliers and keeps plateaus.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from operator import attrgetter, itemgetter
from statistics import median
from typing import TypeVar

from psfleet.evidence.recorded_run import Run

Loss = tuple[int, float]  # (global step after a window, its mean loss)
Item = TypeVar("Item")

TAIL = 0.1  # share of the windows: the first tenth is compared with the last
# The first HEAD windows all lie above the last _LEAST_TAIL windows by chance in less than one of 1000 runs.
HEAD, _LEAST_TAIL = 5, 9
_LAST_PART = 1 / 3  # share of the windows in which the loss must not rise
_BINS = 30  # at most; the cost of a slope over pairs grows with their square
_WINDOWS_OF_A_BIN = 4
# In standard deviations; chance alone exceeds it in one of 1000 runs.
SIGNIFICANT = 3.0
_LEAST_RISE = 1.1  # a rise by less than a tenth is unimportant
# Losses below this share of the target count as equal: they are rounding errors of an exact fit.
_OF_THE_TARGET = 0.1
_OF_THE_FIRST = 1e-6
# A run is cut into so many parts. Parts are taken as nearly independent: noise correlates only within a part.
_PARTS = 20
# The most correlation of neighbouring parts. A steady fall raises it, too; this limit keeps a fall from
# passing for noise.
_MOST_MEMORY = 1 / 3
# Student's t that normal noise exceeds in one of 10,000 runs, by degrees of freedom from 1. Other noise, as
# of losses over few examples, exceeds it more often.
_STUDENT = (3183, 70.7, 22.2, 13.03, 9.678, 8.025, 7.063, 6.442, 6.010)


@dataclass(frozen=True)
class Trend:
    """How the loss moved in the last third of a run.

    `factor` is the loss at the end of this third divided by the loss at its start, by the Theil-Sen slope.
    `significance` is Kendall's tau of the losses, divided by its standard deviation; above 0 the loss rises.
    With too few windows they are 1 and 0.
    """

    factor: float = 1.0
    significance: float = 0.0

    @property
    def rises(self) -> bool:
        """Whether the loss rose by a tenth or more, and beyond noise (`significance` of 3 or more)."""
        return self.factor >= _LEAST_RISE and self.significance >= SIGNIFICANT


@dataclass(frozen=True)
class Change:
    """How the loss moved over a whole run, which is divided into `parts` of equally many windows.

    `order` is Kendall's tau of the parts' means, divided by its standard deviation; it is negative if they
    fall. `drop` is how far the first part lies above the later half, as a multiple of what chance explains.
    """

    parts: int
    order: float
    drop: float

    @property
    def fell(self) -> bool:
        """Whether the loss fell beyond noise: during the whole run, or at first before it levelled off.

        That is, `order` is at most -3, or `drop` is at least 1.
        """
        return self.order <= -SIGNIFICANT or self.drop >= 1

    @property
    def rose(self) -> bool:
        """Whether the loss rose beyond noise: `order` is at least 3, and `fell` is False."""
        return self.order >= SIGNIFICANT and not self.fell

    @property
    def decidable(self) -> bool:
        """Whether there are enough parts to tell a steady fall from chance.

        With too few parts, `order` stays above -3 even if each mean is lower than the one before.
        """
        return _deviation(self.parts) * SIGNIFICANT <= self.parts * (self.parts - 1) / 2


def losses_of(run: Run) -> list[Loss]:
    """Return (global step after the window, mean loss) for each window that has a mean loss.

    A window is one `step` record. The windows of all workers are sorted by global step; [] if none has a
    loss.
    """
    windows = [(window.after, window.loss_mean) for window in run.windows if window.loss_mean is not None]
    return sorted(windows, key=itemgetter(0))


def smoothed_loss(run: Run) -> tuple[float, float]:
    """Return (first loss, last loss) of a run; (nan, nan) for fewer than two losses, or one not finite.

    The losses are those of `losses_of`. The last loss is the median of the last tenth, the first loss the
    median of the first tenth. If a tenth has nine losses or more, the loss may have fallen within the first
    tenth. Then the lowest of the first five losses counts, if it is higher than that median and above every
    loss of the last tenth, which chance seldom causes.
    """
    losses = [loss for _, loss in losses_of(run)]
    if len(losses) < 2 or not all(math.isfinite(loss) for loss in losses):
        return math.nan, math.nan
    tenth = max(1, round(len(losses) * TAIL))
    tail = losses[-tenth:]
    first, head = median(losses[:tenth]), min(losses[:HEAD])
    if tenth >= _LEAST_TAIL and head > max(tail):
        first = max(first, head)
    return first, median(tail)


def change_of(run: Run) -> Change:
    """Return how the losses of a run moved. Each window is weighted by its steps; all losses must be finite.

    There are two tests. Noise alone passes one of them in about two of 1000 runs. The test of Mann and
    Kendall judges the order of the parts, with the wider deviation of Hamed and Rao for noise with memory
    (Journal of Hydrology 204, 1998, 182-196). Student's t of the first part against the later half finds a
    fall that was over before most windows were written. Its noise is that of batch means (Law, Simulation
    Modeling and Analysis): how much the later parts scatter, each weighted by its steps, because the first
    windows have few steps and more noise.
    """
    windows = sorted((w for w in run.windows if w.loss_mean is not None), key=attrgetter("after"))
    losses = [(w.loss_mean or 0.0, max(w.steps, 1)) for w in windows]
    parts = [_mean(part) for part in _cut(losses, min(len(losses), _PARTS))]
    return Change(len(parts), _order([mean for mean, _ in parts]), _drop(parts))


def _order(means: Sequence[float]) -> float:
    """Return Kendall's tau of the means, divided by its standard deviation; negative if they fall.

    The correlation of neighbouring means widens the deviation. Return 0.0 for fewer than two means.
    """
    if len(means) < 2:
        return 0.0
    memory = min(max(_memory(means), 0.0), _MOST_MEMORY) if len(means) == _PARTS else 0.0
    rises = sum((other > one) - (other < one) for one, other in combinations(means, 2))
    return rises / _deviation(len(means)) / math.sqrt((1 + memory) / (1 - memory))


def _memory(means: Sequence[float]) -> float:
    """Return the correlation of each part's residual with the next part's; 0.0 if all residuals are 0.

    A residual is the distance of a mean from the Theil-Sen line through all means.
    """
    slope = median((means[b] - means[a]) / (b - a) for a, b in combinations(range(len(means)), 2))
    level = sum(means) / len(means) - slope * (len(means) - 1) / 2
    left = [mean - slope * number - level for number, mean in enumerate(means)]
    whole = sum(one * one for one in left)
    return sum(one * other for one, other in pairwise(left)) / whole if 0 < whole < math.inf else 0.0


def _drop(parts: Sequence[tuple[float, int]]) -> float:
    """Return how far the first part lies above the later half, as a multiple of what chance explains.

    Return 0.0 if it does not lie above, or if the later half has fewer than two parts; infinity if it lies
    above and the later parts are all equal. `parts` are (mean loss, steps).
    """
    later = parts[(len(parts) + 1) // 2 :]
    if len(later) < 2:
        return 0.0
    (first, steps), (rest, all_steps), freedom = parts[0], _mean(later), len(later) - 1
    # A power would raise an error where a product becomes infinite.
    variance = sum(count * (mean - rest) * (mean - rest) for mean, count in later) / freedom
    error = math.sqrt(variance * (1 / steps + 1 / all_steps))
    if not first > rest:
        return 0.0
    return (first - rest) / error / _STUDENT[freedom - 1] if error else math.inf


def _mean(part: Sequence[tuple[float, int]]) -> tuple[float, int]:
    """Return (mean over all steps, number of all steps) of windows or parts, given as (loss, steps)."""
    steps = sum(count for _, count in part)
    return sum(mean * (count / steps) for mean, count in part), steps


def _deviation(count: int) -> float:
    """Return the standard deviation of (rising - falling pairs) among `count` values in random order."""
    return math.sqrt(count * (count - 1) * (2 * count + 5) / 18)


def trend_of(losses: Sequence[Loss], target: float | None) -> Trend:
    """Return how finite losses, sorted by global step, moved in their last third; at least one is needed.

    Losses below a tenth of `target` count as equal, as rounding errors of an exact fit do. `target` is None
    if no target is known: then losses below a millionth of the first loss count as equal.
    """
    floor = _OF_THE_TARGET * target if target else _OF_THE_FIRST * abs(losses[0][1])
    # The least positive number keeps the logarithm of a loss of exactly 0 finite.
    floor = max(floor, math.ulp(0.0))
    last = losses[-max(round(len(losses) * _LAST_PART), 1) :]
    bins = binned(last, _BINS, _WINDOWS_OF_A_BIN)
    points = [
        (median(step for step, _ in part), math.log(max(median(loss for _, loss in part), floor)))
        for part in bins
    ]
    pairs = [(one, other) for one, other in combinations(points, 2) if other[0] > one[0]]
    if not pairs:
        return Trend()
    slope = median((other[1] - one[1]) / (other[0] - one[0]) for one, other in pairs)
    rises = sum((other[1] > one[1]) - (other[1] < one[1]) for one, other in pairs)
    span = points[-1][0] - points[0][0]
    return Trend(math.exp(min(slope * span, 700.0)), rises / _deviation(len(points)))


def binned(losses: Sequence[Loss], most: int, windows_of_a_bin: int) -> list[Sequence[Loss]]:
    """Return the losses in consecutive bins, whose lengths differ by at most one.

    There are at most `most` bins. Each has at least `windows_of_a_bin` losses, unless there is only one bin.
    """
    return _cut(losses, min(max(len(losses) // windows_of_a_bin, 1), most))


def _cut(items: Sequence[Item], count: int) -> list[Sequence[Item]]:
    """Return the items in `count` consecutive slices, whose lengths differ by at most one.

    Example: _cut("abcde", 2) -> ["ab", "cde"]
    """
    edges = [round(number * len(items) / count) for number in range(count + 1)]
    return [items[start:end] for start, end in pairwise(edges)]
