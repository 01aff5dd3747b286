"""Counts the steps that sessions of TensorFlow 1 take, and records them with the global step around them.

The global step is read now and then, by a session of its own (meeting.py), never within the program's runs.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import sys
import threading
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import psfleet_records
from psfleet_observer import graphs, guard, meeting
from psfleet_observer.guard import guarded, say

if TYPE_CHECKING:
    import tensorflow as tf

_SIGNATURES_KEPT = 1000
_SECONDS_UNTIL_READ_AGAIN = 5.0


@dataclass
class _Session:
    """What is known of a session of the program. `meeting` is None where it trains within its process."""

    meeting: meeting.Meeting | None = None
    lost: bool = False
    steps: dict[tuple[str, ...], graphs.Step | None] = field(default_factory=dict)


class _Observer:
    """Steps of this process that are not written yet, by the loss of each, and the global step before them."""

    def __init__(self, task: psfleet_records.Task) -> None:
        self.task = task
        self.nonce = psfleet_records.draw_nonce()
        self.lock = threading.RLock()
        self.losses: list[float | None] = []
        self.before = 0
        self.last: _Session | None = None
        self.started = False
        self.read_again_at = 0.0

    def meet(self, session: tf.compat.v1.Session, step: graphs.Step) -> _Session:
        """Begin with a session, before its first step."""
        if not self.started:
            self.started = True
            how: dict[str, object] = {"observed": "sessions of TensorFlow 1"}
            how |= {"replication": "sync"} if step.update.synchronous else {}
            self.task.start(how, _last_step["of hooks"], self.nonce)
            atexit.register(self.finish)
        self.last = self._meet_others(session, step) if session.sess_str else self._meet_nobody(session)
        return self.last

    def _meet_nobody(self, session: tf.compat.v1.Session) -> _Session:
        nobody: dict[str, object] = {"ps_nonces": {}, "worker_nonces": {}, "waited_seconds": 0.0}
        place = {"global_step_on": self.task.name, "global_step": self.before}
        where = meeting.places_of(graphs.parameters_of(session.graph), self.task.name)
        self.task.records.write("peers_ready", {**nobody, **place, **where})
        return _Session()

    def _meet_others(self, session: tf.compat.v1.Session, step: graphs.Step) -> _Session:
        import tensorflow as tf

        name, variable = self.task.name, step.update.global_step
        try:
            met = meeting.Meeting(session, variable, name, self.nonce, self.task.workers)
        except (tf.errors.OpError, TimeoutError) as error:
            say(f"the steps of this session are not recorded: {type(error).__name__}: {error}")
            return _Session(lost=True)
        now = int(str(met.found["global_step"]))
        if now >= self.before + len(self.losses):
            self._write(now)
        # Else the model was set again, and what became of these steps nobody knows.
        self.losses, self.before = [], now
        place = {"global_step_on": meeting.place_of(variable.device, name)}
        where = meeting.places_of(graphs.parameters_of(session.graph), name)
        self.task.records.write("peers_ready", {**met.found, **place, **where})
        return _Session(met)

    def took(self, session: _Session, steps: int, loss: float | None) -> None:
        """Count a run that has made so many steps."""
        with self.lock:
            self.losses += [loss, *[None] * (steps - 1)]
            if len(self.losses) >= self.task.windows.room and time.monotonic() >= self.read_again_at:
                self.read(session)

    def read(self, session: _Session) -> None:
        """Write the steps that are not written yet."""
        import tensorflow as tf

        with self.lock:
            if not self.losses:
                return
            try:
                taken = self.before + len(self.losses)
                self._write(session.meeting.global_step() if session.meeting else taken)
            except (tf.errors.OpError, TimeoutError):
                self.read_again_at = time.monotonic() + _SECONDS_UNTIL_READ_AGAIN

    def _write(self, now: int) -> None:
        if self.losses:
            self.task.take(self.losses, self.before, now)
        self.losses, self.before = [], now

    @guarded
    def finish(self) -> None:
        """Write what is left, and how the process ended, as far as it knows."""
        if psfleet_records.told_by_program() or self.last is None:
            return
        self.read(self.last)
        guard.stop()
        error = getattr(sys, "last_value", None)
        if error is None:
            self.task.finish("run over")
        else:
            self.task.fail(f"{type(error).__name__}: {error}")


_sessions: WeakKeyDictionary[tf.compat.v1.Session, _Session] = WeakKeyDictionary()
_observers: list[_Observer] = []
_locks: list[int] = []
_last_step = {"of hooks": 0}


def wrap_sessions(module: ModuleType) -> None:
    """Count the runs that are steps."""
    base = module.BaseSession
    run, make_callable, close = base._do_run, base.make_callable, base.close

    @functools.wraps(run)
    def counting(
        self: Any, handle: Any, target_list: Any, fetch_list: Any, feed_dict: Any, *options: Any
    ) -> Any:
        step = _begin(self, target_list, fetch_list, feed_dict) if handle is None else None
        if step is None:
            return run(self, handle, target_list, fetch_list, feed_dict, *options)
        fetched = fetch_list if step.loss is None else [*fetch_list, step.loss]
        results = run(self, handle, target_list, fetched, feed_dict, *options)
        _took(self, step, results)
        return results[: len(fetch_list)]

    @functools.wraps(make_callable)
    def counting_callable(self: Any, fetches: Any, feed_list: Any = None, *more: Any, **named: Any) -> Any:
        call = make_callable(self, fetches, feed_list, *more, **named)
        # With feeds it is a call of `run`.
        flat = None if feed_list is not None else _flat(self, fetches)
        if flat is None or _begin(self, *flat, {}) is None:
            return call

        def counted(*arguments: Any, **options: Any) -> Any:
            step = _begin(self, *flat, {})
            result = call(*arguments, **options)
            if step is not None:
                _took(self, replace(step, loss=None, loss_fetched=None), ())
            return result

        return counted

    @functools.wraps(close)
    def closing(self: Any) -> Any:
        _close(self)
        return close(self)

    base._do_run, base.make_callable, base.close = counting, counting_callable, closing


def wrap_last_step(module: ModuleType) -> None:
    """Note the global step at which the program will stop."""
    initialise = module.StopAtStepHook.__init__

    @functools.wraps(initialise)
    def noting(self: Any, num_steps: Any = None, last_step: Any = None) -> None:
        initialise(self, num_steps, last_step)
        _note_last_step(last_step)

    module.StopAtStepHook.__init__ = noting


def wrap_servers(module: ModuleType) -> None:
    """Let each ps tell a number that it alone has drawn."""
    initialise = module.Server.__init__

    @functools.wraps(initialise)
    def telling(self: Any, *arguments: Any, **named: Any) -> None:
        initialise(self, *arguments, **named)
        _tell_nonce(self)

    module.Server.__init__ = telling


@guarded
def _note_last_step(last_step: Any) -> None:
    _last_step["of hooks"] = max(_last_step["of hooks"], int(last_step or 0))


@guarded
def _tell_nonce(server: tf.distribute.Server) -> None:
    name = f"{server.server_def.job_name}{server.server_def.task_index}"
    observer = _observer() if name.startswith("ps") else None
    if observer is not None and observer.task.name == name:
        observer.task.start({"observed": "a server"}, 0, observer.nonce)
        meeting.tell_nonce(server, name, observer.nonce)


@guarded
def _begin(session: Any, targets: Sequence[Any], fetches: Sequence[Any], feeds: Any) -> graphs.Step | None:
    """Return what step the program is about to take; None where it is none, or is not to be recorded."""
    known = _sessions.get(session)
    names = (*(operation.name for operation in targets), "", *(tensor.name for tensor in fetches))
    if known is None or names not in known.steps:
        step = graphs.step_of(session.graph, targets, fetches)
        if step is None and known is None:
            return None
        if known is None:
            observer = _observer()
            if observer is None or step is None:
                return None
            known = _sessions[session] = observer.meet(session, step)
        if len(known.steps) >= _SIGNATURES_KEPT:
            known.steps.clear()
        known.steps[names] = step
    step = known.steps[names]
    if step is None or known.lost or psfleet_records.told_by_program():
        return None
    if step.loss is not None and step.loss.ref() in feeds:
        return replace(step, loss=None)
    return step


@guarded
def _took(session: tf.compat.v1.Session, step: graphs.Step, results: Sequence[Any]) -> None:
    loss = None
    if step.loss_fetched is not None:
        loss = float(results[step.loss_fetched])
    elif step.loss is not None:
        loss = float(results[-1])
    _observers[0].took(_sessions[session], step.steps, loss)


@guarded
def _close(session: tf.compat.v1.Session) -> None:
    if session in _sessions and not psfleet_records.told_by_program():
        _observers[0].read(_sessions[session])


@guarded
def _flat(session: tf.compat.v1.Session, fetches: object) -> tuple[list[tf.Operation], list[tf.Tensor]]:
    from tensorflow.python.client.session import _FetchHandler

    handler = _FetchHandler(session.graph, fetches, {})
    return handler.targets(), handler.fetches()


def _observer() -> _Observer | None:
    """Return that of this process; None where the program records itself, or another process observes."""
    if not _observers:
        task = psfleet_records.task_to_observe()
        if task is None or not _alone(task):
            return None
        _observers.append(_Observer(task))
    return _observers[0]


def _alone(task: psfleet_records.Task) -> bool:
    """Whether no other process of the program records the same task; none will, as long as this one lives."""
    try:
        _locks.append(os.open(task.records_file, os.O_RDONLY | os.O_CLOEXEC))
        fcntl.flock(_locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True  # nothing can be recorded, which was said
    except BlockingIOError:
        say("another process of this task trains, too: the steps of this one are not recorded")
        return False
    return True
