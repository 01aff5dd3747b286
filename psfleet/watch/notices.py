"""Notices about a run that is going on: stragglers, restarts, standstills and others, each reported once."""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from statistics import median

from plugins.module_utils.disk_space import LEAST_ROOM
from psfleet.watch.pace import Pace
from psfleet.watch.screen_text import clock, in_a_line, rate_of
from trainer.contract.progress import Progress
from trainer.host.error_lines import in_short
from trainer.host.wording import counted

# A worker must be slow, or quick again, in this many consecutive polls before we report it.
STRAGGLER_POLLS = 8
SLOW_SHARE = 0.5
# Higher than SLOW_SHARE, so that a worker at the limit is not reported again and again.
QUICK_SHARE = 0.7
STILL_SECONDS = 30.0
STILL_STEPS = 10
# Before the first step, it is unknown how long a step takes.
STILL_SECONDS_AT_FIRST = 120.0

# A program that waits may print the same lines again and again; this many of its lines are remembered.
REPEATED_LINES = 100
# {pattern of a program's last line: the usual cause of a standstill with this line}
CAUSES = {
    re.compile(r"Waiting for model to be ready|waits for variables that no task has initialised"): (
        "the lead waits for variables that nobody initialises: is a task chief (is_chief)? "
        "docs/port-a-script.md, Errors"
    ),
}
_REMOTE_TASK = re.compile(r"remote target /job:(\w+)/replica:\d+/task:(\d+)")

# The lead's event records that are worth a notice. It writes other records far more often.
NOTICED_EVENTS = (
    "initialised",
    "restored",
    "ps_restored",
    "recovering",
    "checkpointed",
    "checkpoint_failed",
    "checkpoint_damaged",
    "checkpoint_copied",
    "checkpoint_copy_failed",
    "checkpoint_fetched",
)


@dataclass(frozen=True)
class Notice:
    """A sentence that stays on the screen; `good` is True for good news, such as the end of a problem."""

    text: str
    good: bool = False


@dataclass
class Reasons:
    """The reasons why tasks failed, each with the task that had it first."""

    _first: dict[str, str] = field(default_factory=dict)

    def of(self, task: str, why: str) -> str:
        """Return `why` if no other task had this reason before, else "as" and the task that had it first.

        Example: "as worker0". With `why` "", return "".
        """
        first = self._first.setdefault(why, task) if why else task
        return why if first == task else f"as {first}"


@dataclass
class Stragglers:
    """The workers that are far slower than the others; `unit` is the noun of their rates, such as "steps".

    `slow` has the indexes of these workers.
    """

    unit: str = "steps"
    slow: set[int] = field(default_factory=set)
    _polls: dict[int, int] = field(default_factory=dict)

    def update(self, pace: Pace, away: Set[int] = frozenset()) -> Iterator[Notice]:
        """Yield a notice for each worker that became slow, or quick again, by its rate in `pace`.

        A worker is slow below half of the others' median rate, and quick again above 70 % of it, in eight
        consecutive polls. The workers `away`, given by their index, are not in the run, so they are not
        compared. Nothing is yielded for fewer than two workers, or if `pace` is not comparable.
        """
        rates = {worker: rate for worker, rate in enumerate(pace.rates) if worker not in away}
        self.slow -= away
        if not pace.comparable or len(rates) < 2:
            return
        for worker, rate in rates.items():
            others = median(its for other, its in rates.items() if other != worker)
            limit = others * (QUICK_SHARE if worker in self.slow else SLOW_SHARE)
            if (rate < limit) == (worker in self.slow) or not others:
                self._polls.pop(worker, None)
                continue
            self._polls[worker] = self._polls.get(worker, 0) + 1
            if self._polls[worker] == STRAGGLER_POLLS:
                del self._polls[worker]
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
    """Detects that the global step stands still, or the output of a program that reports no step.

    Times are seconds of the watcher's monotonic clock.
    """

    _step: int = -1
    # The lines that were printed since the last step, the newest last.
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=REPEATED_LINES))
    _since: float = 0.0
    _usual: float | None = None
    _reported: bool = False

    def seconds(self, at: float) -> float:
        """Return for how many seconds the global step has been the same, at the time `at`; 0 at step 0."""
        return at - self._since if self._step > 0 else 0.0

    def update(self, now: Progress, pace: Pace, at: float) -> Iterator[Notice]:
        """Yield a notice if there was no step for long, and another notice when steps continue.

        Long is at least 30 s, and at least ten times as long as a usual step; at step 0, it is 120 s without
        a step and without new lines of output. Before the first step, a run that waits for tasks is not
        reported, nor is one after its last step.
        """
        # Before the first step, the barrier reports the awaited tasks, and ends a run that waits too long.
        stands = now.phase == "training" or (now.phase == "waiting" and now.global_step > 0)
        # After the last step no other is expected.
        stands = stands and not 0 < now.last_step <= now.global_step
        line = "" if now.global_step else now.last_line
        is_new = bool(line) and line not in self._lines
        if not stands or is_new or now.global_step != self._step:
            if self._reported and now.global_step > self._step:
                yield Notice(
                    f"steps go on after {clock(at - self._since)}, at step {now.global_step}", good=True
                )
            if not is_new:
                self._lines.clear()
            if line:
                self._lines.append(line)
            self._step, self._since, self._reported = now.global_step, at, False
            # A standstill would raise the mean, so remember it from before.
            self._usual = pace.seconds_per_step
            return
        patience = max(STILL_SECONDS, STILL_STEPS * (self._usual or 0.0))
        if not now.global_step:
            patience = STILL_SECONDS_AT_FIRST
        if not self._reported and at - self._since >= patience:
            self._reported = True
            waiting = f": {now.waiting}" if now.missing else ""
            yield Notice(f"no step for {clock(at - self._since)}{self._stands_at(now.global_step)}{waiting}")

    def _stands_at(self, step: int) -> str:
        """Return where the run stands, in words that follow the duration in the notice.

        Example: ", still at step 40". At step 0, the words are about what was printed last.
        """
        if step:
            return f", still at step {step}"
        if not self._lines:
            return ", and nothing was printed"
        last = self._lines[-1]
        cause = next((cause for sign, cause in CAUSES.items() if sign.search(last)), "")
        return f": {cause}" if cause else f', still "{in_a_line(last, 80)}"'


@dataclass
class Restarts:
    """Counts how often systemd restarted each task: `counts` is {task: number of restarts}.

    The chief reports the workers' restarts, systemd the restarts of the `lead`.
    """

    lead: str
    counts: dict[str, int] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)
    _reasons: Reasons = field(default_factory=Reasons)

    def update(self, now: Progress, lead_restarts: int) -> Iterator[Notice]:
        """Yield a notice for each task that was restarted since the last call.

        `now` has the workers' restarts; `lead_restarts` is systemd's number for the lead.
        """
        counts = {f"worker{worker}": count for worker, count in enumerate(now.restarts)}
        for task, count in {**counts, self.lead: lead_restarts}.items():
            yield from self.count(task, count)

    def count(self, task: str, count: int, why: str = "") -> Iterator[Notice]:
        """Yield a notice if `count`, the number of a task's restarts, is larger than in the last call.

        `why` is the reason, "" if it is unknown. A smaller number means that the counting began anew.
        """
        # A restarted chief counts the others from 0 again.
        new = max(count - self._last.get(task, 0), 0)
        self._last[task] = count
        self.counts[task] = self.counts.get(task, 0) + new
        if new:
            restarts = f"{task} was restarted ({counted(self.counts[task], 'time')} so far)"
            yield Notice(f"{restarts}: {self._reasons.of(task, why)}" if why else restarts)


@dataclass
class DiskRoom:
    """Tracks whether the disk of the lead's host has space for the run's files; `is_full` is True if not."""

    host: str
    is_full: bool = False

    def update(self, free_bytes: float | None) -> Iterator[Notice]:
        """Yield a notice when the free bytes become too few, or enough again; None is unknown: no notice.

        Too few are less than LEAST_ROOM, enough again is twice as much.
        """
        limit = 2 * LEAST_ROOM if self.is_full else LEAST_ROOM
        if free_bytes is None or self.is_full == (free_bytes < limit):
            return
        self.is_full = not self.is_full
        if self.is_full:
            lost = "no checkpoints until there is space again; records wait, and progress is not shown"
            yield Notice(f"No space left for the run on {self.host}: {lost}")
        else:
            yield Notice(f"there is space again on {self.host}", good=True)


@dataclass
class LeadRecords:
    """Tracks what the event records of the `lead` say about checkpoints and restores.

    `saved_step` is the global step of the newest checkpoint, None before the first.
    """

    lead: str
    saved_step: int | None = None
    # {task on another host: step of the newest copy of a checkpoint there}
    copied_steps: dict[str, int] = field(default_factory=dict)
    _seen: set[tuple[str, str]] | None = None
    _step: int = 0
    _damaged: list[str] = field(default_factory=list)

    def update(self, records: Sequence[Mapping[str, object]], global_step: int) -> Iterator[Notice]:
        """Yield notices about records that the last poll did not have; the first poll yields none.

        `records` are the lead's newest, oldest first; `global_step` is the run's. `saved_step` and
        `copied_steps` are updated without a notice, also by the first poll.
        """
        first, seen = self._seen is None, self._seen or set()
        keys = [(str(record.get("pid")), str(record.get("monotonic"))) for record in records]
        # Each poll reads the newest records: older ones do not come back.
        self._seen = set(keys) or seen
        for key, record in zip(keys, records, strict=True):
            if key in seen:
                continue
            seen.add(key)
            step = record.get("global_step")
            if record.get("event") == "checkpointed" and isinstance(step, int):
                self.saved_step = step
            elif record.get("event") == "checkpoint_copied" and isinstance(step, int):
                self.copied_steps[in_a_line(str(record.get("task")), 20)] = step
            elif not first:
                yield from self._notices_of(record, step if isinstance(step, int) else 0)
        self._step = global_step or self._step

    def _notices_of(self, record: Mapping[str, object], step: int) -> Iterator[Notice]:
        reason = str(record.get("reason") or "")
        event, lost = record.get("event"), max(self._step - step, 0)
        if event == "recovering":
            others = sorted({job + index for job, index in _REMOTE_TASK.findall(reason)} - {self.lead})
            lost_task = f"its connection to {', '.join(others)}" if others else "its session"
            yield Notice(f"{self.lead} lost {lost_task} and connects again: {_first_line(reason)}")
        elif event == "checkpoint_failed":
            yield Notice(f"the checkpoint at step {step} could not be saved: {_first_line(reason)}")
        elif event == "checkpoint_copy_failed":
            task = in_a_line(str(record.get("task")), 20)
            yield Notice(
                f"the checkpoint at step {step} could not be copied to {task}: {_first_line(reason)}"
            )
        elif event == "checkpoint_fetched":
            task = in_a_line(str(record.get("task")), 20)
            yield Notice(f"{self.lead} fetched the copy of step {step} from {task}", good=True)
        elif event == "checkpoint_damaged":
            path = in_a_line(str(record.get("path")).rpartition("/")[2], 60)
            self._damaged.append(path)
            yield Notice(f"{path} is damaged and is passed over: {_first_line(reason)}")
        elif event == "restored":
            why = f", because {', '.join(self._damaged)} cannot be read" if self._damaged else ""
            self._damaged = []
            again = f"; about {lost} steps are lost{why}" if lost else ""
            yield Notice(f"{self.lead} restored the checkpoint of step {step}{again}", good=True)
        elif event == "ps_restored":
            task = in_a_line(str(record.get("task")), 20)
            part = f"{task} alone restored its part of the checkpoint of step {record.get('checkpoint_step')}"
            yield Notice(f"{part}; training goes on from step {step}", good=True)
        elif event == "initialised" and lost:
            yield Notice(f"training begins anew: there was no checkpoint, and about {lost} steps are lost")


def _first_line(reason: str) -> str:
    return in_a_line(in_short(reason).partition("\n")[0], 120)
