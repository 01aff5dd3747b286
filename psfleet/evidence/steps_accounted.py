"""Whether the steps that each worker saw others take are those that the others recorded.

A worker's records say from where to where the global step moved while it took so many steps itself. The rest
was others': who they were, their own records must tell.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from psfleet.evidence.answer import Findings, Good, check, listed
from psfleet.evidence.recorded_run import Run, TaskRecords, Window
from psfleet.evidence.sharing import has_steps
from psfleet.evidence.steps_taken import Account, Tally, account_of, single_steps_end

# A stretch is looked at as a whole and in pieces: too many steps in one place make up for none in another.
_PIECES = 10
_WINDOWS_OF_A_PIECE = 4


class _Range(NamedTuple):
    """A row of a worker's windows, between which the global step did not go back: from where to where."""

    worker: str
    before: int
    after: int
    own: int

    @classmethod
    def of(cls, worker: str, windows: Sequence[Window]) -> "_Range":
        """The steps `own` of a worker from the first of these windows to the last."""
        return cls(worker, windows[0].before, windows[-1].after, sum(window.steps for window in windows))

    @property
    def moved(self) -> int:
        """How many global steps were made meanwhile."""
        return self.after - self.before


@dataclass(frozen=True)
class _Comparison:
    """How many steps in a range `others` must have taken, by a worker's records and by their own.

    `least` is None where their records set no lower bound.
    """

    range: _Range
    others: str
    needed: int
    least: int | None
    most: int


@check
def steps_accounted(findings: Findings, run: Run) -> Good:
    """While a worker trained, others took as many steps as their own records tell of.

    A step lies in the range (before, after] of its window, for `before` is read before the step is made and
    `after` behind it. Over windows from b to a with n own steps, others have thus taken a - b - n:

        steps of others' windows inside (b, a]  <=  a - b - n  <=  steps of those that overlap it + unrecorded

    A synchronous step has R gradients, at most one of each worker. R (a - b) - min(n, a - b) are others', and
    each other has at most a - b; late gradients are dropped, so recorded ones set no lower bound. In-graph,
    where a step has a gradient of each worker, both bounds hold for each other worker, of a - b steps.

    `unrecorded` is what steps_taken.py says. A number that was given again after the model was restored
    stands for two steps: the lower bound is asked, and in-graph also the upper one, only below all such
    numbers. No order of steps by different workers contradicts these inequalities, so no clock and no luck
    is needed.
    """
    told = [worker for worker in run.clients if has_steps(worker, findings)]
    seen: dict[str, dict[str, int]] = {}
    contradicted: set[str] = set()
    for compared, is_stretch in _comparisons(run, told):
        name = compared.range.worker
        if is_stretch:
            sums = seen.setdefault(name, dict.fromkeys(("steps_of_others", "at_least", "at_most"), 0))
            sums["steps_of_others"] += compared.needed
            sums["at_least"] += max(compared.least or 0, 0)
            sums["at_most"] += compared.most
        if name not in contradicted and _contradicts(run, compared, findings):
            contradicted.add(name)
    findings.lacking += [
        f"not all that {worker.name} took is recorded"
        for worker in run.workers
        if worker.windows and not worker.whole
    ]
    good = "the steps of others that a worker saw, and what they recorded: " + listed(
        f"{name} {of['steps_of_others']} ({of['at_least']} to {of['at_most']})" for name, of in seen.items()
    )
    alone = f"nobody else moved the global step; {run.rules.alone}"
    return good if run.rules.shared else alone, {"workers": seen}


def _contradicts(run: Run, compared: _Comparison, findings: Findings) -> bool:
    """Find what is wrong in a comparison, if anything."""
    where = (
        f"from global step {compared.range.before} to {compared.range.after} {compared.range.worker}"
        f" saw {compared.needed} steps of {compared.others}, who recorded"
    )
    if compared.needed > compared.most:
        findings.add(f"{where} {compared.most} at most", certain=run.whole)
        return True
    if compared.least is not None and compared.needed < compared.least:
        findings.add(f"{where} {compared.least} at least", certain=run.chief.whole)
        return True
    return False


def _comparisons(run: Run, told: Sequence[TaskRecords]) -> Iterator[tuple[_Comparison, bool]]:
    """Yield every comparison of what these workers saw, and whether it is of a whole stretch."""
    accounts = {worker.name: account_of(run, worker) for worker in run.workers}
    tally = Tally(run.windows)
    end = single_steps_end(run)
    for worker in told:
        others = {name: account for name, account in accounts.items() if name != worker.name}
        for part, is_stretch in _ranges(worker):
            once = part.after < end
            if part.moved < 0 and not once:
                continue  # the model was set back within a window: how far it had come is not told
            if run.rules.replication == "in_graph":
                found = _towers(part, others) if once else []
            elif run.rules.once_per_step:
                found = [_gradients(part, others, run.rules.gradients_per_step)]
            else:
                found = [_steps(part, accounts[worker.name].tally, others, tally, once=once)]
            for compared in found:
                yield compared, is_stretch


def _steps(
    part: _Range, own: Tally, others: Mapping[str, Account], tally: Tally, *, once: bool
) -> _Comparison:
    """Compare asynchronous steps: all others' together."""
    span = part.before, part.after
    least = max(tally.at_least(*span) - own.at_most(*span), 0) if once else None
    # The sum of what each other may have recorded, without a look at each.
    recorded = tally.at_most(*span) - own.at_most(*span)
    unrecorded = sum(account.unrecorded(*span) for account in others.values())
    return _Comparison(part, "others", part.moved - part.own, least, recorded + unrecorded)


def _gradients(part: _Range, others: Mapping[str, Account], per_step: int) -> _Comparison:
    """Compare synchronous gradients: all others', at most one of each in a step."""
    needed = per_step * part.moved - min(part.own, part.moved)
    most = sum(min(account.at_most(part.before, part.after), part.moved) for account in others.values())
    return _Comparison(part, "others", needed, None, most)


def _towers(part: _Range, others: Mapping[str, Account]) -> list[_Comparison]:
    """Compare the towers of each other worker with the client's steps."""
    span = part.before, part.after
    return [
        _Comparison(part, name, part.moved, account.tally.at_least(*span), account.at_most(*span))
        for name, account in others.items()
    ]


def _ranges(worker: TaskRecords) -> Iterator[tuple[_Range, bool]]:
    """Yield each stretch of the worker's windows, and its pieces."""
    for process in worker.processes:
        for stretch in process.stretches:
            yield _Range.of(worker.name, stretch), True
            count = min(len(stretch) // _WINDOWS_OF_A_PIECE, _PIECES)
            for number in range(count if count > 1 else 0):
                first, last = number * len(stretch) // count, (number + 1) * len(stretch) // count
                yield _Range.of(worker.name, stretch[first:last]), False
