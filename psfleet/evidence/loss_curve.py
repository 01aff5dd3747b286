"""The losses of a run, all workers' together in the order of the global step, and what moved beyond noise.

Losses are smoothed by medians over bins of windows. A median is not moved by a few windows that stand out,
and a plateau is still a plateau in it.
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

TAIL = 0.1  # of the windows: the first tenth and the last are compared
# Chance has all of so many first windows above so many last ones in less than one run of a thousand.
HEAD, _LEAST_TAIL = 5, 9
_LAST_PART = 1 / 3  # of the windows: where the loss must not rise
_BINS = 30  # at most; a slope by pairs grows with their square
_WINDOWS_OF_A_BIN = 4
# In standard deviations: chance alone goes beyond it in one run of a thousand.
SIGNIFICANT = 3.0
_LEAST_RISE = 1.1  # a rise by less than a tenth is no matter
# Losses below this part of the target are all the same: rounding errors of a model that fits exactly.
_OF_THE_TARGET = 0.1
_OF_THE_FIRST = 1e-6
# A loss is noise that forgets itself within a part: parts are then as good as independent of one another.
_PARTS = 20
# A curve seems to have memory, too: what falls all the way is never taken for noise.
_MOST_MEMORY = 1 / 3
# Student's t that normal noise exceeds in one run of ten thousand, by one degree of freedom, two, and so on.
# Noise that is not normal, as of losses of few examples, exceeds it more often.
_STUDENT = (3183, 70.7, 22.2, 13.03, 9.678, 8.025, 7.063, 6.442, 6.010)


@dataclass(frozen=True)
class Trend:
    """How the loss moved in the last third: `factor` from its begin to its end by the Theil-Sen slope.

    `significance` is Kendall's tau in its own standard deviations: how far the order of the losses is from
    chance. Both are 0 and 1 where there are too few windows.
    """

    factor: float = 1.0
    significance: float = 0.0

    @property
    def rises(self) -> bool:
        """Whether it rose, beyond noise and by an amount that matters."""
        return self.factor >= _LEAST_RISE and self.significance >= SIGNIFICANT


@dataclass(frozen=True)
class Change:
    """How the loss moved over a whole run of so many `parts`.

    `order` is Kendall's tau of the parts' means in its own standard deviations, negative where they fall.
    `drop` is how far the first part lies above the later half, as a multiple of what is taken for chance.
    """

    parts: int
    order: float
    drop: float

    @property
    def fell(self) -> bool:
        """Whether it fell beyond noise: all the time, or at first and then came to rest."""
        return self.order <= -SIGNIFICANT or self.drop >= 1

    @property
    def rose(self) -> bool:
        """Whether it rose beyond noise."""
        return self.order >= SIGNIFICANT and not self.fell

    @property
    def decidable(self) -> bool:
        """Whether there are parts enough for a fall all the way to be told from chance."""
        return _deviation(self.parts) * SIGNIFICANT <= self.parts * (self.parts - 1) / 2


def losses_of(run: Run) -> list[Loss]:
    """Return (global step after, mean loss) of all workers' windows that tell a loss, by global step."""
    windows = [(window.after, window.loss_mean) for window in run.windows if window.loss_mean is not None]
    return sorted(windows, key=itemgetter(0))


def smoothed_loss(run: Run) -> tuple[float, float]:
    """Return what the loss was at first, and the median of the last tenth of all workers' windows.

    At first it was the median of the first tenth, by global step. What has converged may rest: where a tenth
    is long, the first windows alone may be above it. Their least counts where it is more, and above every
    window of the last tenth, which chance seldom makes so.
    Both are nan where there are fewer than two windows, or where a loss was not finite.
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
    """Return how the losses of a run moved, which are finite, of each window by its steps.

    Two tests, which noise alone passes in some two runs of a thousand together. Mann and Kendall's asks the
    order of the parts, with Hamed and Rao's wider deviation where noise has memory (Journal of Hydrology 204,
    1998, 182-196). Student's t of the first part against those of the later half finds a fall that was over
    before most windows were written. Its noise is that of batch means (Law, Simulation Modeling and
    Analysis): how the later parts scatter, each by its steps, for the first windows have few and are noisier.
    """
    windows = sorted((w for w in run.windows if w.loss_mean is not None), key=attrgetter("after"))
    losses = [(w.loss_mean or 0.0, max(w.steps, 1)) for w in windows]
    parts = [_mean(part) for part in _cut(losses, min(len(losses), _PARTS))]
    return Change(len(parts), _order([mean for mean, _ in parts]), _drop(parts))


def _order(means: Sequence[float]) -> float:
    """Kendall's tau in its standard deviations, which memory makes wider."""
    if len(means) < 2:
        return 0.0
    memory = min(max(_memory(means), 0.0), _MOST_MEMORY) if len(means) == _PARTS else 0.0
    rises = sum((other > one) - (other < one) for one, other in combinations(means, 2))
    return rises / _deviation(len(means)) / math.sqrt((1 + memory) / (1 - memory))


def _memory(means: Sequence[float]) -> float:
    """How far what the line of Theil and Sen leaves of one part is that of the part before it."""
    slope = median((means[b] - means[a]) / (b - a) for a, b in combinations(range(len(means)), 2))
    level = sum(means) / len(means) - slope * (len(means) - 1) / 2
    left = [mean - slope * number - level for number, mean in enumerate(means)]
    whole = sum(one * one for one in left)
    return sum(one * other for one, other in pairwise(left)) / whole if 0 < whole < math.inf else 0.0


def _drop(parts: Sequence[tuple[float, int]]) -> float:
    """How far the first part lies above the later half, as a multiple of what is taken for chance."""
    later = parts[(len(parts) + 1) // 2 :]
    if len(later) < 2:
        return 0.0
    (first, steps), (rest, all_steps), freedom = parts[0], _mean(later), len(later) - 1
    # A power would raise where a product is infinite.
    variance = sum(count * (mean - rest) * (mean - rest) for mean, count in later) / freedom
    error = math.sqrt(variance * (1 / steps + 1 / all_steps))
    if not first > rest:
        return 0.0
    return (first - rest) / error / _STUDENT[freedom - 1] if error else math.inf


def _mean(part: Sequence[tuple[float, int]]) -> tuple[float, int]:
    """The mean over all steps, and how many these are."""
    steps = sum(count for _, count in part)
    return sum(mean * (count / steps) for mean, count in part), steps


def _deviation(count: int) -> float:
    """The standard deviation, where chance orders so many, of the pairs that rise less those that fall."""
    return math.sqrt(count * (count - 1) * (2 * count + 5) / 18)


def trend_of(losses: Sequence[Loss], target: float | None) -> Trend:
    """Return how finite losses, by global step, moved in their last third."""
    floor = _OF_THE_TARGET * target if target else _OF_THE_FIRST * abs(losses[0][1])
    # The least positive number keeps a loss of exactly 0 within the logarithm.
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
    """Cut into bins of equal counts, so many at most and of so many windows at least."""
    return _cut(losses, min(max(len(losses) // windows_of_a_bin, 1), most))


def _cut(items: Sequence[Item], count: int) -> list[Sequence[Item]]:
    """Cut into so many rows of equal lengths, which never differ by more than one."""
    edges = [round(number * len(items) / count) for number in range(count + 1)]
    return [items[start:end] for start, end in pairwise(edges)]
