"""Whether the steps that each worker saw others take are those that the others recorded.

A worker's records say from where to where the global step moved while it took so many steps itself. The rest
was others': who they were, their own records must tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainer.evidence.accounts import Account, Tally, account_of, single_steps_end
from trainer.evidence.check import Check, Findings, listed
from trainer.evidence.run import Run, TaskRecords, Window

# A stretch is looked at as a whole and in pieces: too many steps in one place make up for none in another.
_PIECES = 10
_WINDOWS_OF_A_PIECE = 4


@dataclass(frozen=True)
class _Range:
    """A row of a worker's windows, between which the global step did not go back."""

    worker: str
    windows: Sequence[Window]

    @property
    def before(self) -> int:
        """The global step before the first of them."""
        return self.windows[0].before

    @property
    def after(self) -> int:
        """The global step after the last."""
        return self.windows[-1].after

    @property
    def moved(self) -> int:
        """How many global steps were made meanwhile."""
        return self.after - self.before

    @property
    def own(self) -> int:
        """How many steps the worker took."""
        return sum(window.steps for window in self.windows)


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


def steps_accounted(run: Run) -> Check:
    """While a worker trained, others took as many steps as their own records tell of.

    A step lies in the range (before, after] of its window, for `before` is read before the step is made and
    `after` behind it. Over windows from b to a with n own steps, others have thus taken a - b - n:

        steps of others' windows inside (b, a]  <=  a - b - n  <=  steps of those that overlap it + unrecorded

    A synchronous step has R gradients, at most one of each worker. R (a - b) - min(n, a - b) are others', and
    each other has at most a - b; late gradients are dropped, so recorded ones set no lower bound. In-graph,
    where a step has a gradient of each worker, both bounds hold for each other worker, of a - b steps.

    `unrecorded` is what accounts.py says. A number that was given again after the model was restored stands
    for two steps: the lower bound is asked, and in-graph also the upper one, only below all such numbers. No
    order of steps by different workers contradicts these inequalities, so no clock and no luck is needed.
    """
    findings = Findings()
    for worker in run.clients:
        if not worker.windows:
            findings.add(f"{worker.name} recorded no step", certain=worker.whole)
    whole = {worker.name for worker in run.workers if worker.whole}
    incomplete = [worker.name for worker in run.workers if worker.windows and not worker.whole]
    seen: dict[str, dict[str, int]] = {}
    contradicted: set[str] = set()
    for compared, is_stretch in _comparisons(run):
        name = compared.range.worker
        if is_stretch:
            sums = seen.setdefault(name, dict.fromkeys(("steps_of_others", "at_least", "at_most"), 0))
            sums["steps_of_others"] += compared.needed
            sums["at_least"] += max(compared.least or 0, 0)
            sums["at_most"] += compared.most
        if name not in contradicted and _contradicts(run, compared, whole, findings):
            contradicted.add(name)
    findings.lacking += [f"not all that {name} took is recorded" for name in incomplete]
    good = "the steps of others that a worker saw, and what they recorded: " + listed(
        f"{name} {told['steps_of_others']} ({told['at_least']} to {told['at_most']})"
        for name, told in seen.items()
    )
    return findings.conclude(
        "steps_accounted", good if run.profile.shared else _alone(run), {"workers": seen}
    )


def _alone(run: Run) -> str:
    return f"nobody else moved the global step; {run.profile.alone}"


def _contradicts(run: Run, compared: _Comparison, whole: set[str], findings: Findings) -> bool:
    """Find what is wrong in a comparison, if anything."""
    where = (
        f"from global step {compared.range.before} to {compared.range.after} {compared.range.worker}"
        f" saw {compared.needed} steps of {compared.others}, who recorded"
    )
    if compared.needed > compared.most:
        everyone = {worker.name for worker in run.workers}
        findings.add(f"{where} {compared.most} at most", certain=everyone <= whole)
        return True
    if compared.least is not None and compared.needed < compared.least:
        findings.add(f"{where} {compared.least} at least", certain=run.chief.name in whole)
        return True
    return False


def _comparisons(run: Run) -> Iterator[tuple[_Comparison, bool]]:
    """Yield every comparison, and whether it is of a whole stretch."""
    accounts = {worker.name: account_of(run, worker) for worker in run.workers}
    tally = Tally(window for worker in run.workers for window in worker.windows)
    end = single_steps_end(run)
    for worker in run.clients:
        for part, is_stretch in _ranges(worker):
            once = part.after < end
            if part.moved < 0 and not once:
                continue  # the model was set back within a window: how far it had come is not told
            if run.profile.replication == "in_graph":
                found = _towers(part, accounts) if once else iter(())
            elif run.profile.once_per_step:
                found = iter([_gradients(part, accounts, run.profile.gradients_per_step)])
            else:
                found = iter([_steps(part, accounts, tally, once=once)])
            for compared in found:
                yield compared, is_stretch


def _steps(part: _Range, accounts: Mapping[str, Account], tally: Tally, *, once: bool) -> _Comparison:
    """Compare asynchronous steps: all others' together."""
    own = accounts[part.worker].tally
    least = tally.at_least(part.before, part.after) - own.at_most(part.before, part.after)
    # The sum of what each other may have recorded, without a look at each.
    recorded = tally.at_most(part.before, part.after) - own.at_most(part.before, part.after)
    unrecorded = sum(
        account.unrecorded(part.before, part.after)
        for name, account in accounts.items()
        if name != part.worker
    )
    return _Comparison(
        part, "others", part.moved - part.own, max(least, 0) if once else None, recorded + unrecorded
    )


def _gradients(part: _Range, accounts: Mapping[str, Account], per_step: int) -> _Comparison:
    """Compare synchronous gradients: all others', at most one of each in a step."""
    needed = per_step * part.moved - min(part.own, part.moved)
    most = sum(
        min(account.at_most(part.before, part.after), part.moved)
        for name, account in accounts.items()
        if name != part.worker
    )
    return _Comparison(part, "others", needed, None, most)


def _towers(part: _Range, accounts: Mapping[str, Account]) -> Iterator[_Comparison]:
    """Compare the towers of each other worker with the client's steps."""
    for name, account in accounts.items():
        if name != part.worker:
            least = account.tally.at_least(part.before, part.after)
            yield _Comparison(part, name, part.moved, least, account.at_most(part.before, part.after))


def _ranges(worker: TaskRecords) -> Iterator[tuple[_Range, bool]]:
    """Yield each stretch of the worker's windows, and its pieces."""
    for process in worker.processes:
        for stretch in process.stretches:
            yield _Range(worker.name, stretch), True
            count = min(len(stretch) // _WINDOWS_OF_A_PIECE, _PIECES)
            for number in range(count if count > 1 else 0):
                first, last = number * len(stretch) // count, (number + 1) * len(stretch) // count
                yield _Range(worker.name, stretch[first:last]), False
