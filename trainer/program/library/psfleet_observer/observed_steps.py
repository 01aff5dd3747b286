"""The steps of this process, and where the global step was around them: what of them is recorded, and when.

The global step is read now and then, by a session of one's own (meeting.py), never within the program's runs.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psfleet_records

from psfleet_observer import graphs, guard, meeting
from psfleet_observer.guard import guarded, say
from psfleet_observer.process import end, task_of_process

if TYPE_CHECKING:
    import tensorflow as tf

_SECONDS_UNTIL_READ_AGAIN = 5.0
_NOBODY: Mapping[str, object] = {"ps_nonces": {}, "worker_nonces": {}, "waited_seconds": 0.0}

last_step = {"of hooks": 0}
_observers: list[Observer] = []


@dataclass
class Session:
    """What is known of a session of the program. `meeting` is None where it trains within its process."""

    meeting: meeting.Meeting | None = None
    begun: bool = False
    lost: bool = False
    steps: dict[tuple[str, ...], graphs.Step | None] = field(default_factory=dict)

    def lose(self, error: Exception) -> None:
        """Record nothing of it."""
        self.lost = True
        say(f"the steps of this session are not recorded: {type(error).__name__}: {error}")


class Observer:
    """Steps that are not written yet, by the loss of each, and the global step before them."""

    def __init__(self, task: psfleet_records.Task) -> None:
        self.task = task
        self.nonce = psfleet_records.draw_nonce()
        self._lock = threading.RLock()
        self._losses: list[float | None] = []
        self._before = 0
        self._last: Session | None = None
        self._read_again_at = 0.0

    def meet(self, session: tf.compat.v1.Session, update: graphs.Update) -> Session:
        """Meet the others as soon as the program runs anything: a step has not to wait for it then."""
        import tensorflow as tf

        own = Session()
        if session.sess_str:
            try:
                who = (self.task.name, self.nonce, self.task.workers)
                own.meeting = meeting.Meeting(session, update.global_step, *who)
            except (tf.errors.OpError, TimeoutError) as error:
                own.lose(error)
        return own

    def begin(self, session: tf.compat.v1.Session, own: Session, update: graphs.Update) -> None:
        """Look where things are before the first step of a session."""
        import tensorflow as tf

        with self._lock:
            if own.begun or own.lost:
                return
            own.begun = True
            if self._last is None:
                how: dict[str, object] = {"observed": "sessions of TensorFlow 1"}
                how |= {"replication": "sync"} if update.synchronous else {}
                self.task.start(how, last_step["of hooks"], self.nonce)
                atexit.register(self.finish)
            self._last = own
            try:
                now, found = own.meeting.look() if own.meeting else (self._before, _NOBODY)
            except (tf.errors.OpError, TimeoutError) as error:
                own.lose(error)
                return
            if now >= self._before + len(self._losses):
                self._write(now)
            # Else the model was set again, and what became of these steps nobody knows.
            self._losses, self._before = [], now
            name = self.task.name
            place = {"global_step": now, "global_step_on": meeting.place_of(update.global_step.device, name)}
            where = meeting.places_of(graphs.parameters_of(session.graph), name)
            self.task.records.write("peers_ready", {**found, **place, **where})

    def took(self, own: Session, steps: int, loss: float | None) -> None:
        """Count a run that has made so many steps."""
        with self._lock:
            self._losses += [loss, *[None] * (steps - 1)]
            if len(self._losses) >= self.task.windows.room and time.monotonic() >= self._read_again_at:
                self.read(own)

    def read(self, own: Session) -> None:
        """Write the steps that are not written yet."""
        import tensorflow as tf

        with self._lock:
            if not self._losses:
                return
            try:
                taken = self._before + len(self._losses)
                self._write(own.meeting.global_step() if own.meeting else taken)
            except (tf.errors.OpError, TimeoutError):
                self._read_again_at = time.monotonic() + _SECONDS_UNTIL_READ_AGAIN

    def _write(self, now: int) -> None:
        if self._losses:
            self.task.take(self._losses, self._before, now)
        self._losses, self._before = [], now

    @guarded
    def finish(self) -> None:
        """Write what is left, and how the process ended, as far as it knows."""
        if psfleet_records.told_by_program() or self._last is None:
            return
        self.read(self._last)
        guard.stop()
        end(self.task, {})


def observer_of_process() -> Observer | None:
    """Return it; None where nothing of this process is to be recorded."""
    if not _observers and (task := task_of_process()) is not None:
        _observers.append(Observer(task))
    return _observers[0] if _observers else None
