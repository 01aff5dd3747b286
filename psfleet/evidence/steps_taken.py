"""How many steps a worker took in a range of global steps, at least and at most, by its records."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from psfleet.evidence.contributions import sessions_broken, unrecorded_spans
from psfleet.evidence.recorded_run import Run, TaskRecords, Window


class Tally:
    """The steps of a set of windows by global step. Ranges are (before, after], as those of windows."""

    def __init__(self, windows: Iterable[Window]) -> None:
        """Sort them once: each count is then a few searches, however many there are."""
        every = [(min(w.before, w.after), max(w.before, w.after), w.steps) for w in windows]
        self._total = sum(steps for _, _, steps in every)
        self._begins, self._begun = _sums((begin, steps) for begin, _, steps in every)
        self._ends, self._ended = _sums((end, steps) for _, end, steps in every)

    def at_most(self, before: int, after: int) -> int:
        """Count the steps of the windows that overlap the range."""
        ended_before = self._ended[bisect_right(self._ends, before)]
        begun_after = self._total - self._begun[bisect_left(self._begins, after)]
        return self._total - ended_before - begun_after

    def at_least(self, before: int, after: int) -> int:
        """Count the steps of the windows inside the range; fewer where others reach beyond both its ends."""
        begun_before = self._begun[bisect_left(self._begins, before)]
        ended_after = self._total - self._ended[bisect_right(self._ends, after)]
        return max(self._total - begun_before - ended_after, 0)


@dataclass(frozen=True)
class Account:
    """What a worker's records tell of its steps, and how many more it may have taken without a record.

    `spans` are ranges of global steps of which it may have taken all, `anywhere` is a number of steps.
    """

    tally: Tally
    spans: Sequence[tuple[int, float]]
    anywhere: int

    def at_most(self, before: int, after: int) -> int:
        """Count the steps in the range that it may have taken."""
        return self.tally.at_most(before, after) + self.unrecorded(before, after)

    def unrecorded(self, before: int, after: int) -> int:
        """Count those of them that it may have taken without a record."""
        within = sum(max(min(end, after) - max(start, before), 0) for start, end in self.spans)
        return int(within) + self.anywhere


def account_of(run: Run, worker: TaskRecords) -> Account:
    """Return what is known of this worker's steps.

    Unrecorded are, at most: of a process that was killed, and of a served worker that was stopped, the global
    steps from its last window to its next process's first; a step for each session that broke; and a window
    for each time that the model was set again, for its range hides that the global step went back within.
    """
    again = max(len(_times_set(run)) - 1, 0)
    spans = unrecorded_spans(run, worker)
    spans = [(start, math.inf if again else end) for start, end in spans]
    longest = max((window.steps for window in worker.windows), default=0)
    return Account(Tally(worker.windows), spans, sessions_broken(run, worker) + again * longest)


def single_steps_end(run: Run) -> float:
    """Return the global step below which each number was given to one step alone.

    That is the lowest to which the model was ever set back; without an end where it was set but once.
    """
    return min(_times_set(run)[1:], default=math.inf)


def _times_set(run: Run) -> list[int]:
    """The global steps at which the chief set the model: at first, and whenever it had to be restored."""
    return [record.integer("global_step") for record in run.chief.of("initialised", "restored")]


def _sums(pairs: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return the keys in order, and for each count of them the sum of their values."""
    ordered = sorted(pairs)
    return [key for key, _ in ordered], [0, *accumulate(value for _, value in ordered)]
