"""What people should hear of while a run goes on, told once: stragglers, restarts, a step that stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from trainer.progress import Progress, printable
from trainer.progress_history import Pace

# Looks in a row that a worker must be slow, or quick again, before people hear of it.
STRAGGLER_LOOKS = 8
SLOW_SHARE = 0.5
# Above the limit for slow ones: a worker at the limit would be told of again and again.
QUICK_SHARE = 0.7
STILL_SECONDS = 30.0
STILL_STEPS = 10
# Before the first step nobody knows how long one takes.
STILL_SECONDS_AT_FIRST = 120.0
REASON_CHARACTERS = 120

_REMOTE_TASK = re.compile(r"remote target /job:(\w+)/replica:\d+/task:(\d+)")
_PREFACE = re.compile(r"^\w+Error:$|From /job:\S+:$")

# The lead's records that people hear of; it writes others far more often.
TOLD_EVENTS = ("initialised", "restored", "recovering", "checkpointed", "checkpoint_failed")


@dataclass(frozen=True)
class Note:
    """A sentence that stays on the screen; `good` where it ends a trouble."""

    text: str
    good: bool = False


@dataclass
class Stragglers:
    """The workers that are far slower than the others. `unit`: what a rate counts, such as "steps"."""

    unit: str = "steps"
    slow: set[int] = field(default_factory=set)
    _looks: dict[int, int] = field(default_factory=dict)

    def look(self, pace: Pace) -> Iterator[Note]:
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

    def _turned(self, worker: int, rate: float, others: float) -> Note:
        comparison = f"{rate_of(rate, self.unit)} (median of the others: {rate_of(others)})"
        if worker in self.slow:
            self.slow.discard(worker)
            return Note(f"worker{worker} keeps up again: {comparison}", good=True)
        self.slow.add(worker)
        return Note(f"worker{worker} {'is slow' if rate else 'stands still'}: {comparison}")


@dataclass
class Standstill:
    """Whether the global step advances. Times are of the watcher's monotonic clock, in seconds."""

    _step: int = -1
    _since: float = 0.0
    _usual: float | None = None
    _told: bool = False

    def seconds(self, at: float) -> float:
        """How long the global step has been what it is; 0 before the first."""
        return at - self._since if self._step > 0 else 0.0

    def look(self, now: Progress, pace: Pace, at: float) -> Iterator[Note]:
        """Take a reading, and tell where no step was taken for long, and when it goes on."""
        # Before the first step the barrier says for whom it waits, and ends a run that waits too long.
        stands = now.phase == "training" or (now.phase == "waiting" and now.global_step > 0)
        if not stands or now.global_step != self._step:
            if self._told and now.global_step > self._step:
                yield Note(
                    f"steps go on after {clock(at - self._since)}, at step {now.global_step}", good=True
                )
            self._step, self._since, self._told = now.global_step, at, False
            # A step that stands makes the mean longer and longer.
            self._usual = pace.seconds_per_step
            return
        patience = max(STILL_SECONDS, STILL_STEPS * (self._usual or 0.0))
        if not now.global_step:
            patience = STILL_SECONDS_AT_FIRST
        if not self._told and at - self._since >= patience:
            self._told = True
            waiting = f": waiting for {names(now.missing)}" if now.missing else ""
            yield Note(f"no step for {clock(at - self._since)}, still at step {now.global_step}{waiting}")


@dataclass
class Restarts:
    """How often systemd started each worker again: as the chief says, and of the lead as systemd says."""

    lead: str
    counts: dict[str, int] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)

    def look(self, now: Progress, of_lead: int) -> Iterator[Note]:
        """Take the newest counts, and tell of new restarts."""
        counts = {f"worker{worker}": count for worker, count in enumerate(now.restarts)}
        for task, count in {**counts, self.lead: of_lead}.items():
            # A chief that was restarted itself counts the others anew, from 0.
            new = max(count - self._last.get(task, 0), 0)
            self._last[task] = count
            self.counts[task] = self.counts.get(task, 0) + new
            if new:
                yield Note(f"{task} was restarted ({times(self.counts[task])} so far)")


@dataclass
class LeadRecords:
    """What the lead's own records say of losses, checkpoints and restores."""

    lead: str
    saved_step: int | None = None
    _seen: set[tuple[str, str]] | None = None
    _step: int = 0

    def look(self, records: Sequence[Mapping[str, object]], global_step: int) -> Iterator[Note]:
        """Take the newest records, each once; what was there at the first look is no news."""
        first, self._seen = self._seen is None, self._seen or set()
        for record in records:
            key = (str(record.get("pid")), str(record.get("monotonic")))
            if key in self._seen:
                continue
            self._seen.add(key)
            step = record.get("global_step")
            if record.get("event") == "checkpointed" and isinstance(step, int):
                self.saved_step = step
            elif not first:
                yield from self._told(record, step if isinstance(step, int) else 0)
        self._step = global_step or self._step

    def _told(self, record: Mapping[str, object], step: int) -> Iterator[Note]:
        reason = str(record.get("reason") or "")
        event, lost = record.get("event"), max(self._step - step, 0)
        if event == "recovering":
            others = sorted({job + index for job, index in _REMOTE_TASK.findall(reason)} - {self.lead})
            lost_task = f"its connection to {', '.join(others)}" if others else "its session"
            yield Note(f"{self.lead} lost {lost_task} and connects again: {in_short(reason)}")
        elif event == "checkpoint_failed":
            yield Note(f"the checkpoint at step {step} could not be saved: {in_short(reason)}")
        elif event == "restored":
            again = f"; about {lost} steps are taken again" if lost else ""
            yield Note(f"{self.lead} restored the checkpoint of step {step}{again}", good=True)
        elif event == "initialised" and lost:
            yield Note(f"training begins anew: there was no checkpoint, and about {lost} steps are lost")


def in_short(reason: str) -> str:
    """Return the line of a reason that says most: TensorFlow's begin with a class and with who saw it."""
    lines = [" ".join(printable(line).split()) for line in reason.splitlines()]
    said = next((line for line in lines if line and not _PREFACE.search(line)), " ".join(lines))
    return said if len(said) <= REASON_CHARACTERS else f"{said[:REASON_CHARACTERS]}..."


def names(missing: Sequence[str], shown: int = 4) -> str:
    """Return the first of these, and how many more there are."""
    first = "; ".join(missing[:shown])
    return f"{first} and {len(missing) - shown} more" if len(missing) > shown else first


def rate_of(per_second: float, unit: str = "") -> str:
    """Return a rate for people, such as "140/s" or, with a unit, "4.2 steps/s"; slow ones by the minute."""
    number, per = (per_second * 60, "min") if 0 < per_second < 0.1 else (per_second, "s")
    text = f"{number:.2g}" if number < 9.95 else f"{number:.0f}"
    return f"{text} {unit}/{per}" if unit else f"{text}/{per}"


def times(count: int) -> str:
    """Return "1 time", "2 times"."""
    return f"{count} time{'' if count == 1 else 's'}"


def clock(seconds: float) -> str:
    """Return a time such as 0:05, 12:40 or 1:02:05."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
