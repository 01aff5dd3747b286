"""Where the time of a run's workers went: on a core, without a core, waiting for others, or for the ps.

The trainer records how much CPU time a process used, and how long its threads were ready but had no core. It
also looks at a number of moments whether a thread ran or was ready (`resources`,
trainer/process/resources.py). The process is *active* while one of its threads runs or is ready. Bounds of
its active time follow:

- Threads that run or wait at the same time are counted together, so it was active at most for the sum.
- No more threads than cores run at once, so it was active at least for the CPU time divided by the cores.
- The moments are a sample: the part of them at which it was active is near the active part of the time.

A worker that is not active waits for the network. Records of tasks are not trusted: impossible numbers are
left out, and too few records count as none.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from psfleet.evidence.recorded_run import Run
from psfleet.evidence.task_records import TaskRecords
from trainer.contract.records import Record
from trainer.contract.run_tasks import SERVER

# The most that a record can contain: the seconds of a century, a machine's cores, the moments of a century.
_MOST_SECONDS, _MOST_CORES, _MOST_SAMPLES = 3e9, 2**16, 2**40
# If a smaller part of a process's time is recorded, the records say nothing about the whole time.
_COVERED = 0.8
# Standard errors around the sampled part: it lies within two in 95 of 100 cases.
_ERRORS = 2.0


@dataclass(frozen=True)
class Span:
    """Bounds of a part of a time: the part is at least `least` and at most `most`, both from 0 to 1."""

    least: float
    most: float

    def __mul__(self, factor: float) -> "Span":
        """Return a span with both bounds multiplied by `factor`."""
        return Span(self.least * factor, self.most * factor)


@dataclass(frozen=True)
class Use:
    """What a task used while the run trained, from its records.

    The records cover `seconds`, in which its threads ran for `cpu_seconds` on a host with `cores` cores.
    `core_wait_seconds` is how long its threads were ready and had no core; None if its kernel does not tell.
    The task was active at `active_samples` of `samples` moments.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    core_wait_seconds: float | None = 0.0
    cores: int = 1
    samples: int = 0
    active_samples: int = 0

    def __add__(self, other: "Use") -> "Use":
        """Return the sum of both; `cores` is the larger of the two.

        `core_wait_seconds` is None if one of both is.
        """
        waits = (self.core_wait_seconds, other.core_wait_seconds)
        return Use(
            self.seconds + other.seconds,
            self.cpu_seconds + other.cpu_seconds,
            None if None in waits else sum(wait for wait in waits if wait is not None),
            max(self.cores, other.cores),
            self.samples + other.samples,
            self.active_samples + other.active_samples,
        )

    def active_in(self, seconds: float) -> Span:
        """Return bounds of the part of `seconds` in which the task was active.

        All that the task used must lie in these seconds, which must be above 0. The bounds come from its CPU
        time and its waits for a core. The moments narrow them as far as they lie between these bounds.
        """
        waits = self.core_wait_seconds
        most = 1.0 if waits is None else min((self.cpu_seconds + waits) / seconds, 1.0)
        least = min(self.cpu_seconds / (seconds * self.cores), most)
        sampled = self._sampled * (self.seconds / seconds)
        return Span(min(max(sampled.least, least), most), max(min(sampled.most, most), least))

    @property
    def _sampled(self) -> Span:
        """Bounds of the active part of the recorded time, by the moments alone (Wilson's score interval).

        Without moments, the bounds are 0 and 1.
        """
        if not self.samples:
            return Span(0.0, 1.0)
        part, of_error = self.active_samples / self.samples, _ERRORS**2 / self.samples
        middle = (part + of_error / 2) / (1 + of_error)
        width = math.sqrt(of_error * (part * (1 - part) + of_error / 4)) / (1 + of_error)
        return Span(middle - width, middle + width)

    @property
    def without_core(self) -> float:
        """The part of the active time in which threads had no core, 0 to 1; 0 if it is unknown."""
        waits = self.core_wait_seconds or 0.0
        return waits / (waits + self.cpu_seconds) if waits else 0.0


@dataclass(frozen=True)
class TimeSpent:
    """Parts, 0 to 1, of the time in which the workers trained. Together they are the whole time.

    In `computing` threads ran; in `without_core` they were ready and had no core. `waiting_for_workers` is
    the time that workers waited in a synchronous step, minus what the worker that waited least waited: the
    others waited for this worker. `elsewhere` is the rest: a worker had nothing to do, because it waited for
    the network and the ps. `cpu_seconds` is no part, but the CPU time of one step of a worker.
    """

    computing: Span
    without_core: Span
    waiting_for_workers: float
    elsewhere: Span
    cpu_seconds: float


class LeastParts(NamedTuple):
    """Lower bounds of parts of a worker's time, 0 to 1.

    In `without_core` its threads had work and no core. In `elsewhere` it had nothing to do, and did not wait
    for other workers.
    """

    without_core: float
    elsewhere: float


def seconds_of(worker: TaskRecords) -> float:
    """Return the seconds that a worker's windows of steps took, by its own clock; 0 without windows.

    Impossible values, not above 0 or above a century, are left out.
    """
    return sum(window.seconds for window in worker.windows if 0 < window.seconds <= _MOST_SECONDS)


def waiting_for_workers(run: Run) -> float:
    """Return the part, 0 to 1, of the workers' time that they waited longer than the least waiting worker.

    Each worker's waiting is compared as a part of its own time. Return 0.0 if no time is recorded.
    """
    waited = [(seconds_of(worker), _waiting(worker)) for worker in run.with_lost]
    parts = [(seconds, min(waiting / seconds, 1.0)) for seconds, waiting in waited if seconds > 0]
    least = min((part for _, part in parts), default=0.0)
    total = sum(seconds for seconds, _ in parts)
    return sum(seconds * (part - least) for seconds, part in parts) / total if total else 0.0


def time_spent(run: Run) -> TimeSpent | None:
    """Return where the time of all workers went; None if that is unknown.

    It is unknown if no step was recorded, or if the records of one worker that took steps do not cover its
    time (`use_of_worker`).
    """
    training = [worker for worker in run.with_lost if seconds_of(worker) > 0]
    used = [(seconds_of(worker), use_of_worker(run, worker)) for worker in training]
    known = [(seconds, use) for seconds, use in used if use is not None]
    total, steps = sum(seconds for seconds, _ in known), sum(window.steps for window in run.windows)
    if not known or len(known) < len(used) or steps <= 0:
        return None
    parts = [(seconds / total, use.active_in(seconds), use) for seconds, use in known]
    active = _sum(span * weight for weight, span, _ in parts)
    without = _sum(span * (weight * use.without_core) for weight, span, use in parts)
    computing = _sum(span * (weight * (1 - use.without_core)) for weight, span, use in parts)
    waiting = min(waiting_for_workers(run), 1 - active.least)
    return TimeSpent(
        computing=computing,
        without_core=without,
        waiting_for_workers=waiting,
        elsewhere=Span(max(1 - active.most - waiting, 0.0), max(1 - active.least - waiting, 0.0)),
        cpu_seconds=sum(use.cpu_seconds for _, use in known) / steps,
    )


def use_of_worker(run: Run, worker: TaskRecords) -> Use | None:
    """Return what a worker and its existing server, if it has one, used together.

    Return None unless the worker's records cover at least 80 % of its time, and its server has records.
    """
    own = _use_in(worker.of("resources"))
    if own is None or own.seconds < _COVERED * seconds_of(worker):
        return None
    server = server_of(run, worker)
    if server is None:
        return own
    served = _use_in(server.of("resources"))
    # The worker waits while its server works, and the other way round, so their active times add up.
    return None if served is None else own + served


def least_parts(run: Run, worker: TaskRecords) -> LeastParts:
    """Return lower bounds of the parts of a worker's time; 0.0 where they are unknown."""
    use, seconds = use_of_worker(run, worker), seconds_of(worker)
    if use is None or seconds <= 0:
        return LeastParts(0.0, 0.0)
    active, waiting = use.active_in(seconds), min(_waiting(worker) / seconds, 1.0)
    return LeastParts(active.least * use.without_core, max(1 - active.most - waiting, 0.0))


def server_of(run: Run, worker: TaskRecords) -> TaskRecords | None:
    """Return the existing server that computes for a worker; None if the worker computes itself."""
    name = f"{SERVER}{worker.name.removeprefix('worker')}"
    return next((server for server in run.servers if server.name == name), None)


def use_of_ps(ps: TaskRecords, seconds: float) -> Use | None:
    """Return what a ps used; None unless its records cover at least 80 % of the `seconds` of training."""
    own = _use_in(ps.of("resources"))
    return own if own is not None and own.seconds >= _COVERED * seconds else None


def _use_in(records: Sequence[Record]) -> Use | None:
    uses = [use for record in records if (use := _use(record)) is not None]
    return sum(uses[1:], uses[0]) if uses else None


def _use(record: Record) -> Use | None:
    """Return what a `resources` record says was used; None if its numbers are impossible or missing."""
    seconds, cpu, cores = record.number("seconds"), record.number("cpu_seconds"), record.integer("cores")
    samples, active = record.integer("samples"), record.integer("active_samples")
    waits = record.number("core_wait_seconds") if "core_wait_seconds" in record.fields else None
    can_be = (
        0 < seconds <= _MOST_SECONDS
        and 1 <= cores <= _MOST_CORES
        and 0 <= cpu <= seconds * cores * 1.1 + 1.0
        and 0 <= active <= samples <= _MOST_SAMPLES
        and (waits is None or 0 <= waits <= _MOST_SECONDS * _MOST_CORES)
    )
    return Use(seconds, cpu, waits, cores, samples, active) if can_be else None


def _waiting(worker: TaskRecords) -> float:
    waits = (window.waiting_seconds for window in worker.windows)
    return sum(wait for wait in waits if wait is not None and 0 <= wait <= _MOST_SECONDS)


def _sum(spans: Iterable[Span]) -> Span:
    every = list(spans)
    return Span(sum(span.least for span in every), sum(span.most for span in every))
