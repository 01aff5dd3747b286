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
# To fetch a loss that the program does not fetch costs some 50 us.
_STEPS_WITH_LOSS, _STEPS_BETWEEN_LOSSES = 100, 8
_NOBODY: Mapping[str, object] = {"ps_nonces": {}, "worker_nonces": {}, "waited_seconds": 0.0}

_last_step = {"of hooks": 0}
_observers: list[Observer] = []


@dataclass
class Session:
    """What is known of a session of the program. `meeting` is None where it trains within its process.

    `steps` has what its runs are, by the ids of what is run, which is `kept` therefore; `taken` counts steps.
    """

    observer: Observer
    meeting: meeting.Meeting | None = None
    begun: bool = False
    lost: bool = False
    steps: dict[tuple[int, ...], graphs.Step | None] = field(default_factory=dict)
    kept: list[object] = field(default_factory=list)
    taken: int = 0

    @property
    def wants_loss(self) -> bool:
        """Whether the next step is one of those whose loss is asked for, where the program does not."""
        return self.taken < _STEPS_WITH_LOSS or self.taken % _STEPS_BETWEEN_LOSSES == 0

    def lose(self, error: Exception) -> None:
        """Record nothing of it."""
        self.lost = True
        say(f"the steps of this session are not recorded: {type(error).__name__}: {error}")

    def close(self) -> None:
        """Write its steps, while it is there to say where the global step is; then it is over."""
        if self.begun and not self.lost:
            self.observer.read(self)
        self.lost = True
        if self.meeting:
            self.meeting.close()


class Observer:
    """Steps that are not written yet, by the loss of each, and the global step before them.

    `losses` has one for each of them; when there are `limit`, they are to be written, or told of.
    """

    def __init__(self, task: psfleet_records.Task) -> None:
        self.task = task
        self.nonce = psfleet_records.draw_nonce()
        self._lock = threading.RLock()
        self.losses: list[float | None] = []
        self.limit = 1
        self._before = 0
        self._steps_a_second = 1
        self._looked_at = time.monotonic()
        self._last: Session | None = None
        self._read_again_at = 0.0

    def meet(self, session: tf.compat.v1.Session, update: graphs.Update) -> Session:
        """Meet the others as soon as the program runs anything: a step has not to wait for it then."""
        import tensorflow as tf

        own = Session(self)
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
            if own.begun or own.lost or psfleet_records.told_by_program():
                return
            own.begun = True
            if self._last is None:
                how: dict[str, object] = {"observed": "sessions of TensorFlow 1"}
                how |= {"replication": "sync"} if update.synchronous else {}
                self.task.start(how, _last_step["of hooks"], self.nonce)
                atexit.register(self.finish)
            self._last = own
            try:
                now, found = own.meeting.look() if own.meeting else (self._before, _NOBODY)
            except (tf.errors.OpError, TimeoutError) as error:
                own.lose(error)
                return
            if now >= self._before + len(self.losses):
                self._write(now)
            # Else the model was set again, and what became of these steps nobody knows.
            self._go_on_from(now)
            name = self.task.name
            place = {"global_step": now, "global_step_on": meeting.place_of(update.global_step.device, name)}
            where = meeting.places_of(graphs.parameters_of(session.graph), name)
            self.task.records.write("peers_ready", {**found, **place, **where})

    def took(self, own: Session, steps: int) -> None:
        """Look at what is not written yet, after a run that made so many steps."""
        with self._lock:
            self.losses += [None] * (steps - 1)
            if len(self.losses) >= self.limit and time.monotonic() >= self._read_again_at:
                self.read(own, everything=len(self.losses) >= self.task.windows.room)

    def read(self, own: Session, *, everything: bool = True) -> None:
        """Write the steps that are not written yet, or just tell how far the run is."""
        import tensorflow as tf

        with self._lock:
            if not self.losses or psfleet_records.told_by_program():
                return
            try:
                taken = self._before + len(self.losses)
                now = own.meeting.global_step() if own.meeting else taken
                if everything:
                    self._write(now)
                else:
                    self.task.tell(now, self.losses[-1])
                    self.limit = min(self.task.windows.room, len(self.losses) + self._steps_a_second)
            except (tf.errors.OpError, TimeoutError):
                self._read_again_at = time.monotonic() + _SECONDS_UNTIL_READ_AGAIN

    def _write(self, now: int) -> None:
        if self.losses:
            self.task.take(self.losses, self._before, now)
        self._go_on_from(now)

    def _go_on_from(self, now: int) -> None:
        seconds, self._looked_at = time.monotonic() - self._looked_at, time.monotonic()
        self._steps_a_second = 1 + int(len(self.losses) / max(seconds, 0.001))
        self.losses, self._before, self.limit = [], now, self.task.windows.room
        if self.task.is_lead:
            self.limit = min(self.limit, self._steps_a_second)

    @guarded
    def finish(self) -> None:
        """Write what is left, and how the process ended, as far as it knows."""
        if psfleet_records.told_by_program() or self._last is None:
            return
        if not self._last.lost:
            self.read(self._last)
        guard.stop()
        end(self.task, {})


@guarded
def note_last_step(last_step: int | None) -> None:
    """Note the global step at which a hook of the program will stop it."""
    _last_step["of hooks"] = max(_last_step["of hooks"], int(last_step or 0))


def observer_of_process() -> Observer | None:
    """Return it; None where nothing of this process is to be recorded."""
    if not _observers and (task := task_of_process()) is not None:
        _observers.append(Observer(task))
    return _observers[0] if _observers else None
