"""What people should hear of while a run goes on, told once: stragglers, restarts, a step that stands."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from psfleet.watch.pace import Pace
from psfleet.watch.wording import clock, in_a_line, rate_of
from trainer.contract.progress import Progress
from trainer.host.disk_space import LEAST_ROOM
from trainer.host.error_lines import in_short
from trainer.host.wording import counted

# Looks in a row that a worker must be slow, or quick again, before people hear of it.
STRAGGLER_LOOKS = 8
SLOW_SHARE = 0.5
# Above the limit for slow ones: a worker at the limit would be told of again and again.
QUICK_SHARE = 0.7
STILL_SECONDS = 30.0
STILL_STEPS = 10
# Before the first step nobody knows how long one takes.
STILL_SECONDS_AT_FIRST = 120.0

_REMOTE_TASK = re.compile(r"remote target /job:(\w+)/replica:\d+/task:(\d+)")

# The lead's records that people hear of; it writes others far more often.
TOLD_EVENTS = ("initialised", "restored", "recovering", "checkpointed", "checkpoint_failed")


@dataclass(frozen=True)
class Notice:
    """A sentence that stays on the screen; `good` where it ends a trouble."""

    text: str
    good: bool = False


@dataclass
class Reasons:
    """Why tasks failed, told once: of the next task that has the same reason, the first one's name."""

    _first: dict[str, str] = field(default_factory=dict)

    def of(self, task: str, why: str) -> str:
        """Return the reason, or which task had it before."""
        first = self._first.setdefault(why, task) if why else task
        return why if first == task else f"as {first}"


@dataclass
class Stragglers:
    """The workers that are far slower than the others. `unit`: what a rate counts, such as "steps"."""

    unit: str = "steps"
    slow: set[int] = field(default_factory=set)
    _looks: dict[int, int] = field(default_factory=dict)

    def look(self, pace: Pace) -> Iterator[Notice]:
        """Take new rates, and tell of the workers that became slow, or quick again."""
        if not pace.comparable or len(pace.rates) < 2:
            return
        for worker, rate in enumerate(pace.rates):
            others = median(pace.rates[:worker] + pace.rates[worker + 1 :])
            limit = others * (QUICK_SHARE if worker in self.slow else SLOW_SHARE)
            if (rate < limit) == (worker in self.slow) or not others:
                self._looks.pop(worker, None)
                continue
            self._looks[worker] = self._looks.get(worker, 0) + 1
            if self._looks[worker] == STRAGGLER_LOOKS:
                del self._looks[worker]
                yield self._turned(worker, rate, others)

    def _turned(self, worker: int, rate: float, others: float) -> Notice:
        comparison = f"{rate_of(rate, self.unit)} (median of the others: {rate_of(others)})"
        if worker in self.slow:
            self.slow.discard(worker)
            return Notice(f"worker{worker} keeps up again: {comparison}", good=True)
        self.slow.add(worker)
        return Notice(f"worker{worker} {'is slow' if rate else 'stands still'}: {comparison}")


@dataclass
class Standstill:
    """Whether the global step advances, or what a program prints that tells no step.

    Times are of the watcher's monotonic clock, in seconds.
    """

    _step: int = -1
    _line: str = ""
    _since: float = 0.0
    _usual: float | None = None
    _told: bool = False

    def seconds(self, at: float) -> float:
        """How long the global step has been what it is; 0 before the first."""
        return at - self._since if self._step > 0 else 0.0

    def look(self, now: Progress, pace: Pace, at: float) -> Iterator[Notice]:
        """Take a reading, and tell where no step was taken for long, and when it goes on."""
        # Before the first step the barrier says for whom it waits, and ends a run that waits too long.
        stands = now.phase == "training" or (now.phase == "waiting" and now.global_step > 0)
        # Behind the last step none is awaited.
        stands = stands and not 0 < now.last_step <= now.global_step
        line = "" if now.global_step else now.last_line
        if not stands or (now.global_step, line) != (self._step, self._line):
            if self._told and now.global_step > self._step:
                yield Notice(
                    f"steps go on after {clock(at - self._since)}, at step {now.global_step}", good=True
                )
            self._step, self._line, self._since, self._told = now.global_step, line, at, False
            # A step that stands makes the mean longer and longer.
            self._usual = pace.seconds_per_step
            return
        patience = max(STILL_SECONDS, STILL_STEPS * (self._usual or 0.0))
        if not now.global_step:
            patience = STILL_SECONDS_AT_FIRST
        if not self._told and at - self._since >= patience:
            self._told = True
            waiting = f": {now.waiting}" if now.missing else ""
            still = f"still at step {now.global_step}" if now.global_step else "and nothing was printed"
            still = f'still "{in_a_line(line, 80)}"' if line else still
            yield Notice(f"no step for {clock(at - self._since)}, {still}{waiting}")


@dataclass
class Restarts:
    """How often systemd started each worker again: as the chief says, and of the lead as systemd says."""

    lead: str
    counts: dict[str, int] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)
    _reasons: Reasons = field(default_factory=Reasons)

    def look(self, now: Progress, of_lead: int) -> Iterator[Notice]:
        """Take the newest counts, and tell of new restarts."""
        counts = {f"worker{worker}": count for worker, count in enumerate(now.restarts)}
        for task, count in {**counts, self.lead: of_lead}.items():
            yield from self.count(task, count)

    def count(self, task: str, count: int, why: str = "") -> Iterator[Notice]:
        """Take the newest count of a task, and tell of new restarts, and why."""
        # A chief that was restarted itself counts the others anew, from 0.
        new = max(count - self._last.get(task, 0), 0)
        self._last[task] = count
        self.counts[task] = self.counts.get(task, 0) + new
        if new:
            told = f"{task} was restarted ({counted(self.counts[task], 'time')} so far)"
            yield Notice(f"{told}: {self._reasons.of(task, why)}" if why else told)


@dataclass
class Room:
    """Whether there is room for what the lead of a run writes, on its host."""

    host: str
    lacks: bool = False

    def look(self, free_bytes: float | None) -> Iterator[Notice]:
        """Take how many bytes are free, and tell where that has changed to nothing, or back."""
        limit = 2 * LEAST_ROOM if self.lacks else LEAST_ROOM
        if free_bytes is None or self.lacks == (free_bytes < limit):
            return
        self.lacks = not self.lacks
        if self.lacks:
            lost = "checkpoints, records and what is shown here are lost until there is some"
            yield Notice(f"No space left for the run on {self.host}: {lost}")
        else:
            yield Notice(f"there is space again on {self.host}", good=True)


@dataclass
class LeadRecords:
    """What the lead's own records say of losses, checkpoints and restores."""

    lead: str
    saved_step: int | None = None
    _seen: set[tuple[str, str]] | None = None
    _step: int = 0

    def look(self, records: Sequence[Mapping[str, object]], global_step: int) -> Iterator[Notice]:
        """Take the newest records, each once; what was there at the first look is no news."""
        first, seen = self._seen is None, self._seen or set()
        keys = [(str(record.get("pid")), str(record.get("monotonic"))) for record in records]
        # A look shows the newest records: those that are not among them do not come back.
        self._seen = set(keys) or seen
        for key, record in zip(keys, records, strict=True):
            if key in seen:
                continue
            seen.add(key)
            step = record.get("global_step")
            if record.get("event") == "checkpointed" and isinstance(step, int):
                self.saved_step = step
            elif not first:
                yield from self._told(record, step if isinstance(step, int) else 0)
        self._step = global_step or self._step

    def _told(self, record: Mapping[str, object], step: int) -> Iterator[Notice]:
        reason = str(record.get("reason") or "")
        event, lost = record.get("event"), max(self._step - step, 0)
        if event == "recovering":
            others = sorted({job + index for job, index in _REMOTE_TASK.findall(reason)} - {self.lead})
            lost_task = f"its connection to {', '.join(others)}" if others else "its session"
            yield Notice(f"{self.lead} lost {lost_task} and connects again: {_first_line(reason)}")
        elif event == "checkpoint_failed":
            yield Notice(f"the checkpoint at step {step} could not be saved: {_first_line(reason)}")
        elif event == "restored":
            again = f"; about {lost} steps are taken again" if lost else ""
            yield Notice(f"{self.lead} restored the checkpoint of step {step}{again}", good=True)
        elif event == "initialised" and lost:
            yield Notice(f"training begins anew: there was no checkpoint, and about {lost} steps are lost")


def _first_line(reason: str) -> str:
    return in_a_line(in_short(reason).partition("\n")[0], 120)
