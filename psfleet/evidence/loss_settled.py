"""Whether the loss has come to rest where it should, whatever the noise of single batches.

Losses are smoothed by medians over bins of windows, all workers' together, in the order of the global step.
A median is not moved by a few windows that stand out, and a plateau is still a plateau in it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median

from psfleet.evidence.answer import Findings, Good, check
from psfleet.evidence.convergence import losses_of
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.settings import EvidenceSettings

_LAST_PART = 1 / 3  # of the windows: where the loss must not rise
_BINS = 30  # at most; a slope by pairs grows with their square
_WINDOWS_OF_A_BIN = 4
# The last windows are asked for a level, not for a slope: fewer and steadier bins.
_PATIENCE_BINS = 10
_WINDOWS_OF_A_PATIENCE_BIN = 10
# Of Kendall's tau: chance alone goes beyond it in one run of a thousand.
_SIGNIFICANT = 3.0
_LEAST_RISE = 1.1  # a rise by less than a tenth is no matter
# Losses below this part of the target are all the same: rounding errors of a model that fits exactly.
_OF_THE_TARGET = 0.1
_OF_THE_FIRST = 1e-6


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
        return self.factor >= _LEAST_RISE and self.significance >= _SIGNIFICANT


@check
def loss_settled(findings: Findings, run: Run, settings: EvidenceSettings) -> Good:
    """The loss does not rise in the last third of the run, and stays at its target in the last windows.

    The target is `target_loss`, else the model's own; where there is none, the loss must only not rise. It
    has stayed there where every median of the last `loss_patience` of the windows is at most the target.
    """
    losses = losses_of(run)
    target = settings.target_loss_of(run.model)
    if len(losses) < 2 or not all(math.isfinite(loss) for _, loss in losses):
        findings.lacking.append("there are too few finite losses to judge")
        return "", {}
    trend = trend_of(losses, target)
    if trend.rises:
        findings.add(
            f"the loss rises: {trend.factor:.2f} times as high at the end of the last third of the run as at"
            " its begin, beyond noise",
            certain=run.whole,
        )
    levels = _levels(losses, settings.loss_patience)
    highest, last = max(levels), f"the last {settings.loss_patience:.0%} of the windows"
    if target is not None and highest > target:
        findings.add(
            f"in {last} the loss was {highest:.4g} (highest median of {len(levels)}), "
            f"expected at most {target:g} all the time",
            certain=run.whole,
        )
    stays = "" if target is None else f", at most {target:g}"
    return f"{highest:.4g}{stays} in {last}, and not rising", {
        "target_loss": target,
        "highest_median": highest,
        "factor_of_last_third": round(trend.factor, 4),
        "significance": round(trend.significance, 2),
    }


def trend_of(losses: Sequence[tuple[int, float]], target: float | None) -> Trend:
    """Return how finite losses, by global step, moved in their last third."""
    floor = _OF_THE_TARGET * target if target else _OF_THE_FIRST * abs(losses[0][1])
    # The least positive number keeps a loss of exactly 0 within the logarithm.
    floor = max(floor, math.ulp(0.0))
    last = losses[-max(round(len(losses) * _LAST_PART), 1) :]
    bins = _binned(last, _BINS, _WINDOWS_OF_A_BIN)
    points = [
        (median(step for step, _ in part), math.log(max(median(loss for _, loss in part), floor)))
        for part in bins
    ]
    pairs = [(one, other) for one, other in combinations(points, 2) if other[0] > one[0]]
    if not pairs:
        return Trend()
    slope = median((other[1] - one[1]) / (other[0] - one[0]) for one, other in pairs)
    rises = sum((other[1] > one[1]) - (other[1] < one[1]) for one, other in pairs)
    count = len(points)
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    span = points[-1][0] - points[0][0]
    return Trend(math.exp(min(slope * span, 700.0)), rises / deviation)


def _levels(losses: Sequence[tuple[int, float]], patience: float) -> list[float]:
    """Return the medians of the last `patience` of the windows, each over ten at least if there are."""
    last = losses[-max(round(len(losses) * patience), 1) :]
    bins = _binned(last, _PATIENCE_BINS, _WINDOWS_OF_A_PATIENCE_BIN)
    return [median(loss for _, loss in part) for part in bins]


def _binned(
    losses: Sequence[tuple[int, float]], most: int, windows_of_a_bin: int
) -> list[Sequence[tuple[int, float]]]:
    """Cut into bins of equal counts, which never differ by more than one."""
    count = min(max(len(losses) // windows_of_a_bin, 1), most)
    edges = [round(number * len(losses) / count) for number in range(count + 1)]
    return [losses[start:end] for start, end in pairwise(edges)]
