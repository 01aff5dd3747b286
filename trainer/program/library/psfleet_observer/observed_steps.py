"""The observed steps of this process, the global steps around them, and their records.

The global step is read now and then by the observer's own session (meeting.py), never in the program's runs.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psfleet_records

from psfleet_observer import guard, meeting, trained, training_runs
from psfleet_observer.guard import guarded, say
from psfleet_observer.process import end, task_of_process

if TYPE_CHECKING:
    import tensorflow as tf

_SECONDS_UNTIL_READ_AGAIN = 5.0
# Fetching a loss that the program does not fetch costs some 50 us, so it is fetched only in some steps: in
# the first 100, then in every eighth.
_STEPS_WITH_LOSS, _STEPS_BETWEEN_LOSSES = 100, 8
# TensorFlow prepares a run anew for other fetches, which takes many seconds for a large graph. A run whose
# preparation took longer than this keeps its fetches.
_SLOW_SECONDS = 2.0
_NOBODY: Mapping[str, object] = {"ps_nonces": {}, "worker_nonces": {}, "waited_seconds": 0.0}

_last_step = {"of hooks": 0}
_observers: list[Observer] = []


@dataclass
class ObservedSession:
    """The state of one of the program's sessions.

    Attributes:
        meeting: the session to the other tasks; None if the session trains within its own process.
        counters: the names of the step counters.
        begun: whether the places of the variables were recorded; if it is reset, they are examined again.
        lost: True if no more steps are recorded.
        steps: {ids of a run's operations: the step of the run, or None if the run is no step}.
        references: references to these operations, so that no other object gets their ids.
        taken_steps: the number of calls that were counted as steps.
        writes: the model's variables that the steps write.
        recorded: the fields that were recorded about the places of variables; {} before.

    """

    observer: Observer
    meeting: meeting.Meeting | None = None
    counters: list[str] = field(default_factory=list)
    begun: bool = False
    lost: bool = False
    steps: dict[tuple[int, ...], training_runs.Step | None] = field(default_factory=dict)
    references: list[object] = field(default_factory=list)
    taken_steps: int = 0
    writes: frozenset[tf.Operation] = frozenset()
    recorded: Mapping[str, object] = field(default_factory=dict)

    def is_extra_due(self, step: training_runs.Step) -> bool:
        """Return whether to fetch the `extra_fetches` of the next step, in addition to the program's fetches.

        True in every eighth step; in all of the first 100 steps, unless the program itself fetches the loss;
        and always, if TensorFlow needs long to prepare the run.
        """
        if not step.first_seconds or step.first_seconds[0] > _SLOW_SECONDS:
            return True
        often = self.taken_steps < _STEPS_WITH_LOSS and not step.fetches_loss
        return often or self.taken_steps % _STEPS_BETWEEN_LOSSES == 0

    def stop_recording(self, error: Exception) -> None:
        """Record no more steps of this session, because of `error`, and log why."""
        self.lost = True
        why = f"the steps of this session are not recorded: {type(error).__name__}: {error}"
        trained.note_unseen(why.partition("\n")[0])
        say(why)

    def close(self) -> None:
        """Write the session's steps while the global step can still be read, and end its observation."""
        if self.recorded and not self.lost:
            self.observer.read(self)
        self.lost = True
        if self.meeting:
            self.meeting.close()


class Observer:
    """The steps of this process that are not written yet.

    A *reading* is a reading of the global step. A step that began before the last reading, in another thread,
    may have been counted before or after it: it is `unplaced`. The next reading waits for such steps, so no
    step spans two readings.

    Attributes:
        losses: the loss of each unwritten step, None if unknown.
        limit: how many unwritten steps cause a reading.
        readings: the number of readings so far.

    """

    def __init__(self, task: psfleet_records.Task) -> None:
        self.task = task
        self.nonce = psfleet_records.draw_nonce()
        # Whether this process recorded its start as a server; a ps may train, too.
        self.serves = False
        self._lock = threading.RLock()
        self.losses: list[float | None] = []
        self._trained = 0  # steps that changed the model, as far as the graphs show
        self.limit = 1
        self.readings = self._unplaced = 0
        self._running = {"since the last reading": 0, "longer": 0}
        self._before = 0
        self._steps_a_second = 1
        self._read_at = time.monotonic()
        self._last: ObservedSession | None = None
        self._read_again_at = 0.0
        self._gradients = {"gradients_seen": 0, "gradients_of_zero": 0}
        atexit.register(self.finish)

    def meet(self, session: tf.compat.v1.Session) -> ObservedSession:
        """Return a new state for a session, connected to the other tasks; this may take a minute.

        It is called before the session's first run, so that no step has to wait. If connecting fails, the
        session's steps are not recorded (`lost`).
        """
        own = ObservedSession(self)
        self._meet_at_counters(session, own)
        return own

    def _meet_at_counters(self, session: tf.compat.v1.Session, own: ObservedSession) -> None:
        import tensorflow as tf

        counters = training_runs.counters_of(session.graph)
        names = [counter.op.name for counter in counters]
        if own.lost or not session.sess_str or names == own.counters:
            return
        if own.meeting:
            own.meeting.close()
        own.counters = names
        try:
            own.meeting = meeting.Meeting(session, counters, self.task.name, self.nonce, self.task.workers)
        except (tf.errors.OpError, TimeoutError) as error:
            own.stop_recording(error)

    def begin(self, session: tf.compat.v1.Session, own: ObservedSession, step: training_runs.Step) -> None:
        """Record where variables and counters are, before the session `own` first takes this `step`.

        The first call in the process also records its start. Nothing is recorded if the places are as
        recorded before, or if the program records itself.
        """
        import tensorflow as tf

        with self._lock:
            if own.begun or own.lost or psfleet_records.recorded_by_program():
                return
            own.begun = True
            if self._last is None and not self.serves:
                how: dict[str, object] = {"observed": "sessions of TensorFlow 1"}
                if step.replicas:
                    how |= {"replication": "sync", "replicas_to_aggregate": step.replicas}
                self.task.start(how, _last_step["of hooks"], self.nonce)
                self.task.observed = True
            self._last = own
            own.writes |= step.writes
            where = self._where(session, own, step)
            if where == own.recorded:
                return
            self._meet_at_counters(session, own)
            if own.lost:
                return
            own.recorded = where
            try:
                now, peers = own.meeting.read() if own.meeting else (self._before, _NOBODY)
            except (tf.errors.OpError, TimeoutError) as error:
                own.stop_recording(error)
                return
            if now >= self._before + len(self.losses) - self._unplaced:
                self._write(now)
            # Otherwise the model was set back, and it is unknown which of these steps the model contains.
            self._go_on_from(now)
            self.task.records.write("peers_ready", {**peers, "global_step": now, **where})

    def _where(
        self, session: tf.compat.v1.Session, own: ObservedSession, step: training_runs.Step
    ) -> dict[str, object]:
        """Return fields of a `peers_ready` record: where the model's variables and counters are.

        They are `global_step_on`, `counters`, `variables` and, if there are any, `doubts`.
        """
        name, graph = self.task.name, session.graph
        counters = training_runs.counters_of(graph)
        counted = {each.op: each.dtype.base_dtype.size for each in counters}
        where: dict[str, object] = {
            "global_step_on": ", ".join(
                dict.fromkeys(meeting.place_of(each.device, name) for each in counters)
            ),
            "counters": meeting.places_of(counted, name),
            "variables": meeting.places_of(training_runs.parameters_of(graph, own.writes), name),
        }
        doubts = {"condition"} if not step.certain else set()
        doubts |= {"gradients"} if training_runs.strange_gradients(graph) else set()
        earlier = str(own.recorded.get("doubts", "")).split()
        return where | ({"doubts": " ".join(sorted(doubts.union(earlier)))} if doubts or earlier else {})

    def enter(self) -> int:
        """Note that a step begins; return the number of readings so far, for `leave` or `count`."""
        with self._lock:
            self._running["since the last reading"] += 1
            return self.readings

    def leave(self, readings: int) -> None:
        """Note that a step failed; `readings` is what `enter` returned for it. `count` calls this itself."""
        with self._lock:
            self._running["since the last reading" if readings == self.readings else "longer"] -= 1

    def count(
        self, own: ObservedSession, step: training_runs.Step, loss: float | None, readings: int
    ) -> None:
        """Count a call of the session `own` that took `step`; read the global step if enough steps wait.

        `readings` is what `enter` returned for the call; do not call `leave`. `loss` is None if unknown.
        """
        with self._lock:
            self.leave(readings)
            own.taken_steps += 1
            self._unplaced += step.steps if readings != self.readings else 0
            self.losses += [loss, *[None] * (step.steps - 1)]
            due = len(self.losses) >= self.limit and not self._running["longer"]
            if due and time.monotonic() >= self._read_again_at:
                self.read(own, everything=len(self.losses) >= self.task.windows.room)

    def note_trained(self, steps: int) -> None:
        """Count steps that changed the model, whether or not `count` counts them, too."""
        with self._lock:
            self._trained += steps

    def see(self, gradients: Iterable[object]) -> None:
        """Count a step whose gradients were fetched, and whether all of them are zero."""
        import numpy as np

        with self._lock:
            self._gradients["gradients_seen"] += 1
            self._gradients["gradients_of_zero"] += not any(np.any(np.asarray(each)) for each in gradients)

    def read(self, own: ObservedSession, *, everything: bool = True) -> None:
        """Read the global step through `own`; with `everything`, write the steps, else only report progress.

        Do nothing if there are no unwritten steps, or if the program records itself. If the ps do not answer,
        the steps stay unwritten, and the next try is 5 s later.
        """
        import tensorflow as tf

        with self._lock:
            if not self.losses or psfleet_records.recorded_by_program():
                return
            try:
                own_count = self._before + len(self.losses)
                now = own.meeting.global_step() if own.meeting else own_count
                if everything:
                    self._write(now)
                else:
                    self.task.set_progress(now, self.losses[-1])
                    self.limit = min(self.task.windows.room, len(self.losses) + self._steps_a_second)
            except (tf.errors.OpError, TimeoutError):
                self._read_again_at = time.monotonic() + _SECONDS_UNTIL_READ_AGAIN

    def _write(self, now: int) -> None:
        if self.losses:
            self.task.record_window(self.losses, self._before, now, self._unplaced, self._trained)
        self._go_on_from(now)

    def _go_on_from(self, now: int) -> None:
        seconds, self._read_at = time.monotonic() - self._read_at, time.monotonic()
        self._steps_a_second = 1 + int(len(self.losses) / max(seconds, 0.001))
        self.losses, self._before, self.limit = [], now, self.task.windows.room
        self.readings, self._unplaced, self._trained = self.readings + 1, 0, 0
        self._running["longer"] += self._running["since the last reading"]
        self._running["since the last reading"] = 0
        if self.task.is_lead:
            self.limit = min(self.limit, self._steps_a_second)

    @guarded
    def finish(self) -> None:
        """Write the remaining steps and a record of the process's end, and end the observation.

        No record is written if no step was observed, or if the program records itself.
        """
        if not psfleet_records.recorded_by_program() and self._last is not None:
            if not self._last.lost:
                self.read(self._last)
            end(self.task, self._gradients)
        guard.stop()


@guarded
def note_last_step(last_step: int | None) -> None:
    """Note the global step at which a hook will stop the program; the highest counts, None is ignored."""
    _last_step["of hooks"] = max(_last_step["of hooks"], int(last_step or 0))


@guarded
def count_training(steps: int) -> None:
    """Count steps that changed the model; do nothing if this process has no observer yet."""
    for observer in _observers if steps else ():
        observer.note_trained(steps)


def observer_of_process() -> Observer | None:
    """Return the observer of this process, created by the first call.

    Return None if the steps of this process are not to be recorded (see `task_of_process`).
    """
    if not _observers and (task := task_of_process()) is not None:
        _observers.append(Observer(task))
    return _observers[0] if _observers else None
