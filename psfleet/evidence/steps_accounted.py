"""Checks that the other workers recorded the steps of others that each worker saw.

A worker's records say how far the global step moved while the worker took a number of steps itself. Others
made the rest, so their records must account for it.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from psfleet.evidence.answer import Findings, Good, listed
from psfleet.evidence.card import TRAIN_ANEW, Card, Group, check
from psfleet.evidence.contributions import steps_of_broken_sessions, unrecorded_spans
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.sharing import has_steps
from psfleet.evidence.task_records import TaskRecords, Window

# A stretch is judged as a whole and in pieces, because too many steps in one place do not make up for none in
# another.
_PIECES = 10
_WINDOWS_OF_A_PIECE = 4


class Tally:
    """Counts the steps of windows by global step, and how many more steps may lack a record.

    Each global step in the ranges `spans` may be a step without a record, and so may `anywhere` steps in
    addition. Ranges are (before, after], as in windows. Each count takes a few searches, however many windows
    there are.
    """

    def __init__(
        self, windows: Iterable[Window], spans: Sequence[tuple[int, float]] = (), anywhere: int = 0
    ) -> None:
        every = [(min(w.before, w.after), max(w.before, w.after), w.steps) for w in windows]
        self._begins, self._begun = _sums((begin, steps) for begin, _, steps in every)
        self._ends, self._ended = _sums((end, steps) for _, end, steps in every)
        self._total, self._spans, self._anywhere = self._begun[-1], spans, anywhere

    def at_least(self, before: int, after: int) -> int:
        """Return a lower bound of the steps in the range (before, after]: those of windows inside it.

        The bound is lower still, but at least 0, if a window begins before the range and ends after it.
        """
        begun_before = self._begun[bisect_left(self._begins, before)]
        ended_after = self._total - self._ended[bisect_right(self._ends, after)]
        return max(self._total - begun_before - ended_after, 0)

    def recorded(self, before: int, after: int) -> int:
        """Return the number of steps of all windows that overlap the range (before, after].

        A window that overlaps it in part counts with all its steps.
        """
        ended_before = self._ended[bisect_right(self._ends, before)]
        begun_after = self._total - self._begun[bisect_left(self._begins, after)]
        return self._total - ended_before - begun_after

    def unrecorded(self, before: int, after: int) -> int:
        """Return the most steps without a record that may have been made in the range (before, after]."""
        within = sum(max(min(end, after) - max(start, before), 0) for start, end in self._spans)
        return int(within) + self._anywhere

    def at_most(self, before: int, after: int) -> int:
        """Return an upper bound of the steps in the range (before, after]: `recorded` plus `unrecorded`."""
        return self.recorded(before, after) + self.unrecorded(before, after)


class _Range(NamedTuple):
    """Consecutive windows of one process of `worker`, and the global steps that they cover.

    Within them, the global step did not go back, and no session broke. They cover (before, after]; `own` is
    the number of the worker's steps in it. `is_stretch` is False for a piece of a longer range that fits
    this.
    """

    worker: str
    before: int
    after: int
    own: int
    is_stretch: bool

    @property
    def moved(self) -> int:
        """The number of global steps in the range: `after` minus `before`."""
        return self.after - self.before


class _Comparison(NamedTuple):
    """The number of steps in `range` that `others` must have made, by the worker's records and by their own.

    The worker's records say `needed`; the others' records say `least` to `most`. `least` is None if they set
    no lower bound. `others` is a worker's name, or "others" for all others together.
    """

    range: _Range
    others: str
    needed: int
    least: int | None
    most: int


@check(
    Card(
        Group.SHARING,
        holds=(
            "while each worker trained, the global step moved by this worker's steps and by the steps that "
            "the others recorded"
        ),
        fails="the global step moved by more or fewer steps",
        unknown="a worker's records are incomplete",
        advice=f"The global step moved further than the workers' records account for. {TRAIN_ANEW}",
    )
)
def steps_accounted(findings: Findings, run: Run) -> Good:
    """Check that while a worker trained, others took as many steps as their own records show.

    A step lies in the range (before, after] of its window, because `before` is read before the step is made,
    and `after` after it. Over windows from b to a with n own steps, others have thus taken a - b - n steps:

        steps of their windows inside (b, a]  <=  a - b - n  <=  steps of those that overlap it + unrecorded

    A synchronous step has R gradients, at most one of each worker. So others made R (a - b) - min(n, a - b)
    gradients, each other worker at most a - b. There is no lower bound, because late gradients are recorded
    and dropped. In-graph, a step has one gradient of each worker, so both bounds hold for each other worker,
    with a - b steps. `_tally_of` defines `unrecorded`.

    After the model was restored, numbers are used again and stand for two steps. So the lower bound, and
    in-graph also the upper bound, is checked only below all such numbers. No order of steps by different
    workers contradicts these inequalities, so neither clocks nor luck matter.

    Figures: `workers`, {worker: {`steps_of_others`, `at_least`, `at_most`}}, summed over its stretches.
    """
    lost = [worker for worker in run.recorded_lost if worker.windows]
    recorded = [*(worker for worker in run.clients if has_steps(worker, findings)), *lost]
    seen: dict[str, dict[str, int]] = {}
    contradicted: set[str] = set()
    for compared in _comparisons(run, recorded):
        name = compared.range.worker
        if compared.range.is_stretch:
            sums = seen.setdefault(name, dict.fromkeys(("steps_of_others", "at_least", "at_most"), 0))
            sums["steps_of_others"] += compared.needed
            sums["at_least"] += max(compared.least or 0, 0)
            sums["at_most"] += compared.most
        if name not in contradicted and _contradicts(run, compared, findings):
            contradicted.add(name)
    findings.lacking += [
        f"not every step that {worker.name} took is recorded"
        for worker in run.workers
        if worker.windows and not worker.whole
    ]
    good = "the steps of others that a worker saw, and what they recorded: " + listed(
        f"{name} {of['steps_of_others']} ({of['at_least']} to {of['at_most']})" for name, of in seen.items()
    )
    alone = f"no other worker moved the global step; {run.rules.alone}"
    return good if run.rules.shared else alone, {"workers": seen}


def _contradicts(run: Run, compared: _Comparison, findings: Findings) -> bool:
    where = (
        f"from global step {compared.range.before} to {compared.range.after} {compared.range.worker}"
        f" saw {compared.needed} steps of {compared.others}, which recorded"
    )
    if compared.needed > compared.most:
        findings.add(f"{where} {compared.most} at most", certain=run.whole)
        return True
    if compared.least is not None and compared.needed < compared.least:
        findings.add(f"{where} {compared.least} at least", certain=run.chief.whole)
        return True
    return False


def _comparisons(run: Run, recorded: Sequence[TaskRecords]) -> Iterator[_Comparison]:
    # The global steps to which the chief set the model later, after it had set the model once at the start.
    set_to = [record.integer("global_step") for record in run.chief.of("initialised", "restored")][1:]
    tallies = {worker.name: _tally_of(run, worker, len(set_to)) for worker in run.with_lost}
    every = Tally(run.windows)
    for part in (part for worker in recorded for part in _ranges(worker)):
        others = {name: tally for name, tally in tallies.items() if name != part.worker}
        once = part.after < min(set_to, default=math.inf)  # each number stands for one step
        if part.moved < 0 and not once:
            continue  # the model was set back within a window, which hides how far it had come
        if run.rules.replication == "in_graph":
            yield from _towers(part, others) if once else ()
        elif run.rules.once_per_step:
            yield _gradients(part, others, run.rules.gradients_per_step)
        else:
            yield _steps(part, tallies[part.worker], others, every, once=once)


def _steps(part: _Range, own: Tally, others: Mapping[str, Tally], every: Tally, *, once: bool) -> _Comparison:
    """Return the comparison for asynchronous steps, of all others together.

    `own` is the worker's tally, `every` the tally of all workers. There is a lower bound only with `once`:
    each global step in the range was made once, not again after a restore.
    """
    span = part.before, part.after
    least = max(every.at_least(*span) - own.recorded(*span), 0) if once else None
    # The sum of what the others may have recorded, without examining each.
    recorded = every.recorded(*span) - own.recorded(*span)
    unrecorded = sum(tally.unrecorded(*span) for tally in others.values())
    return _Comparison(part, "others", part.moved - part.own, least, recorded + unrecorded)


def _gradients(part: _Range, others: Mapping[str, Tally], per_step: int) -> _Comparison:
    """Return the comparison for synchronous gradients, of all others together; it has no lower bound.

    `per_step` gradients make one global step, at most one of each worker.
    """
    needed = per_step * part.moved - min(part.own, part.moved)
    most = sum(min(tally.at_most(part.before, part.after), part.moved) for tally in others.values())
    return _Comparison(part, "others", needed, None, most)


def _towers(part: _Range, others: Mapping[str, Tally]) -> Iterator[_Comparison]:
    """Yield one comparison for each other worker, whose gradients are compared with the client's steps.

    This is for in-graph replication.
    """
    span = part.before, part.after
    for name, tally in others.items():
        yield _Comparison(part, name, part.moved, tally.at_least(*span), tally.at_most(*span))


def _ranges(worker: TaskRecords) -> Iterator[_Range]:
    for stretch in (stretch for process in worker.processes for stretch in process.stretches):
        count = min(len(stretch) // _WINDOWS_OF_A_PIECE, _PIECES)
        edges = [number * len(stretch) // count for number in range(count + 1)] if count > 1 else []
        for first, last in [(0, len(stretch)), *pairwise(edges)]:
            part = stretch[first:last]
            own = sum(window.steps for window in part)
            yield _Range(worker.name, part[0].before, part[-1].after, own, part == stretch)


def _tally_of(run: Run, worker: TaskRecords, again: int) -> Tally:
    """Return the tally of a worker's steps; `again` is how often the model was set again after the start.

    At most these steps may lack a record:

    - the global steps from the last window of a process that was killed, or of a served worker that was
      stopped, to the first window of the next process;
    - the steps of one call for each session that broke;
    - the steps of a window for each time that the model was set again, because a window hides that the global
      step went back within it;
    - of a lost worker, as many as the ps counted beyond its records.
    """
    is_lost = run.is_lost(worker.name)
    if is_lost and not again and run.contributions:
        beyond = run.contributions.get(worker.name, 0) - worker.local_steps
        return Tally(worker.windows, anywhere=max(beyond, 0))
    if is_lost and not worker.records:
        return Tally((), [(0, math.inf)])
    spans = [(start, math.inf if again else end) for start, end in unrecorded_spans(run, worker)]
    longest = max((window.steps for window in worker.windows), default=0)
    return Tally(worker.windows, spans, steps_of_broken_sessions(run, worker) + again * longest)


def _sums(pairs: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Return (sorted keys, sums) of (key, value) pairs; `sums[n]` is the sum of the first n keys' values.

    Example: _sums([(5, 1), (2, 10)]) -> ([2, 5], [0, 10, 11])
    """
    ordered = sorted(pairs)
    return [key for key, _ in ordered], [0, *accumulate(value for _, value in ordered)]
