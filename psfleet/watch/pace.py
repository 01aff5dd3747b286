"""Computes how fast a run is and how its loss develops, from readings of its lead's `progress.json`."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

from trainer.contract.progress import Progress

# Rates are taken over at least this time, and this many steps of a median worker. That is long enough to
# compare workers, and short enough to show that a worker has stopped.
RECENT_SECONDS = 5.0
RECENT_STEPS = 10
# The time left is estimated over a longer time, so that it does not jump.
STEADY_SECONDS = 30.0
# An estimate from a shorter time would be a guess, because the first steps are slow and few.
ENOUGH_SECONDS = 10.0
READINGS_KEPT = 600
LOSSES_KEPT = 480
# The trend is computed from this many newest losses, and not from fewer than FEWEST_LOSSES.
TREND_LOSSES = 30
FEWEST_LOSSES = 8

Trend = Literal["falling", "level", "rising", ""]


@dataclass(frozen=True)
class Pace:
    """The speed of a run.

    `steps_per_second` is the rate of the global step, None if it is unknown. `rates` are the workers'
    contributions per second, by index. Both are over the last seconds. `comparable` is True if that time is
    long enough to tell slow workers from fast workers. `seconds_left` and `seconds_per_step` are over a
    longer time, None if they are unknown.
    """

    steps_per_second: float | None = None
    rates: tuple[float, ...] = ()
    comparable: bool = False
    seconds_left: float | None = None
    seconds_per_step: float | None = None


class RunHistory:
    """The newest readings of a run, at most 600, and its losses so far, thinned out to at most 480."""

    def __init__(self) -> None:
        self._readings: deque[Progress] = deque(maxlen=READINGS_KEPT)
        self._losses: list[float] = []
        self._every, self._skipped = 1, 0

    def add(self, now: Progress) -> bool:
        """Add a reading; return True if it was added.

        Return False, and ignore the reading, if it was written at the same time as the last one, or if the
        run does not train. If the global step or the clock went back, earlier readings are dropped first.
        """
        before = self._readings[-1] if self._readings else None
        if now.phase != "training" or (before is not None and now.wall == before.wall):
            return False
        # After a restored checkpoint, or if the clock was set back, earlier readings cannot be compared.
        if before is not None and (now.global_step < before.global_step or now.wall < before.wall):
            self._readings.clear()
        self._readings.append(now)
        if now.loss is not None and (before is None or now.global_step != before.global_step):
            self._add_loss(now.loss)
        return True

    def pace(self) -> Pace:
        """Return the present speed of the run; a Pace without figures after fewer than two readings."""
        if len(self._readings) < 2:
            return Pace()
        now = self._readings[-1]
        recent, comparable = self._stretch(RECENT_SECONDS, RECENT_STEPS)
        steady, _ = self._stretch(STEADY_SECONDS, RECENT_STEPS)
        seconds = now.wall - recent.wall
        per_second = (now.global_step - steady.global_step) / (now.wall - steady.wall)
        _, enough = self._stretch(ENOUGH_SECONDS, RECENT_STEPS)
        known = enough and now.last_step and per_second
        left = (now.last_step - now.global_step) / per_second if known else None
        return Pace(
            (now.global_step - recent.global_step) / seconds,
            tuple(count / seconds for count in _gained(recent, now)),
            comparable,
            None if left is None else max(left, 0.0),
            1 / per_second if per_second else None,
        )

    def curve(self, points: int) -> tuple[float, ...]:
        """Return the losses so far, oldest first: the medians of at most `points` parts of equal length.

        Return () if no loss was read.
        """
        losses = self._losses
        points = min(points, len(losses))
        edges = [part * len(losses) // points for part in range(points + 1)] if points else []
        return tuple(median(losses[start:end]) for start, end in pairwise(edges))

    def trend(self) -> Trend:
        """Return the direction of the newest 30 losses: "falling", "rising", or "level" within their noise.

        Return "" if there are fewer than eight losses.
        """
        newest = self._losses[-TREND_LOSSES:]
        if len(newest) < FEWEST_LOSSES:
            return ""
        half = len(newest) // 2
        older, newer = newest[:half], newest[half:]
        change = median(newer) - median(older)
        # Twice the standard error of a difference of two medians, with the spread also taken from medians.
        noise = 2 * 1.86 * 2**0.5 * (_spread(older) + _spread(newer)) / 2 / half**0.5
        if abs(change) <= max(noise, 0.005 * abs(median(older))):
            return "level"
        return "rising" if change > 0 else "falling"

    def _stretch(self, seconds: float, steps: int) -> tuple[Progress, bool]:
        """Return (the newest reading that is at least `seconds` and `steps` ago, True).

        `steps` are counted for the median worker, or by the global step if workers report none. If no reading
        is so old, return (the oldest reading, False).
        """
        now = self._readings[-1]
        for earlier in reversed(self._readings):
            gained = _gained(earlier, now) or [now.global_step - earlier.global_step]
            if now.wall - earlier.wall >= seconds and median(gained) >= steps:
                return earlier, True
        return self._readings[0], False

    def _add_loss(self, loss: float) -> None:
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self._losses.append(loss)
        if len(self._losses) > LOSSES_KEPT:
            self._losses = self._losses[::2]
            self._every *= 2


def _gained(before: Progress, now: Progress) -> list[int]:
    pairs = zip(before.contributions, now.contributions, strict=False)
    return [max(later - earlier, 0) for earlier, later in pairs]


def _spread(values: Sequence[float]) -> float:
    middle = median(values)
    return median(abs(value - middle) for value in values)
