"""Counts the runs of TensorFlow 1's sessions that are training steps."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from psfleet_observer import graphs, meeting
from psfleet_observer.guard import guarded
from psfleet_observer.observed_steps import Session, note_last_step, observer_of_process

if TYPE_CHECKING:
    import tensorflow as tf

_RUNS_KEPT = 1000

_OWN = "_psfleet_observed"  # the attribute of a session that holds what is known of it
_meeting = threading.Lock()


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
        more = [] if step.loss is None or step.known else [step.loss]
        results = run(self, handle, target_list, [*fetch_list, *more], feed_dict, *options)
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
                _took_by_callable(self, step, fetches, result)
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
        note_last_step(last_step)

    module.StopAtStepHook.__init__ = noting


def wrap_servers(module: ModuleType) -> None:
    """Let each ps tell a number that it alone has drawn."""
    initialise = module.Server.__init__

    @functools.wraps(initialise)
    def telling(self: Any, *arguments: Any, **named: Any) -> None:
        initialise(self, *arguments, **named)
        if named.get("start", True):
            _tell_nonce(self)

    module.Server.__init__ = telling


@guarded
def _tell_nonce(server: tf.distribute.Server) -> None:
    name = f"{server.server_def.job_name}{server.server_def.task_index}"
    observer = observer_of_process() if name.startswith("ps") else None
    if observer is not None and observer.task.name == name:
        observer.task.start({"observed": "a server"}, 0, observer.nonce)
        meeting.tell_nonce(server, name, observer.nonce)


@guarded
def _begin(
    session: tf.compat.v1.Session, targets: Sequence[Any], fetches: Sequence[Any], feeds: Any
) -> graphs.Step | None:
    """Return what step the program is about to take; None where it is none, or is not to be recorded.

    It is called for every run, and by then the processor's caches are the model's: a few lines are 30 us.
    """
    own = session.__dict__.get(_OWN) or _meet(session)
    if own is None:
        return None
    of_run = (*map(id, targets), 0, *map(id, fetches))
    step = own.steps[of_run] if of_run in own.steps else _know(session, own, targets, fetches)
    if step is None or own.lost or not (own.begun or _begun(session, own, step)):
        return None
    if step.loss is None or step.known:
        return step
    return step if own.wants_loss and step.loss.ref() not in feeds else step.without_loss


def _meet(session: tf.compat.v1.Session) -> Session | None:
    """Return what is known of a session from now on; None where its graph moves no global step."""
    updates = graphs.updates_of(session.graph)
    if not updates:
        return None  # nor do those of the observer, which runs in them what it asks of the ps
    with _meeting:
        observer = observer_of_process() if _OWN not in session.__dict__ else None
        if observer is not None:
            session.__dict__[_OWN] = observer.meet(session, updates[0])
        own: Session | None = session.__dict__.get(_OWN)
        return own


def _know(
    session: tf.compat.v1.Session, own: Session, targets: Sequence[Any], fetches: Sequence[Any]
) -> graphs.Step | None:
    if len(own.steps) >= _RUNS_KEPT:
        own.steps.clear()
        own.kept.clear()
    own.kept.append((targets, fetches))  # so that nothing else gets their ids
    step = graphs.step_of(session.graph, targets, fetches)
    own.steps[(*map(id, targets), 0, *map(id, fetches))] = step
    return step


def _begun(session: tf.compat.v1.Session, own: Session, step: graphs.Step) -> bool:
    observer = observer_of_process()
    if observer is not None:
        observer.begin(session, own, step.update)
    return own.begun and not own.lost


@guarded
def _took(session: tf.compat.v1.Session, step: graphs.Step, results: Sequence[Any]) -> None:
    own = session.__dict__[_OWN]
    own.observer.losses.append(None if step.place is None else float(results[step.place]))
    own.taken += 1
    if step.steps > 1 or len(own.observer.losses) >= own.observer.limit:
        own.observer.took(own, step.steps)


@guarded
def _close(session: tf.compat.v1.Session) -> None:
    own = session.__dict__.get(_OWN)
    if own is not None:
        own.close()


@guarded
def _took_by_callable(session: tf.compat.v1.Session, step: graphs.Step, fetches: Any, result: Any) -> None:
    """Count a step whose loss is known where it is one of what the callable gives."""
    listed = isinstance(fetches, list | tuple)
    places = [place for place, of in enumerate(fetches if listed else [fetches]) if of is step.loss]
    _took(session, replace(step, place=next(iter(places), None)), result if listed else [result])


@guarded
def _flat(session: tf.compat.v1.Session, fetches: object) -> tuple[list[tf.Operation], list[tf.Tensor]]:
    from tensorflow.python.client.session import _FetchHandler

    handler = _FetchHandler(session.graph, fetches, {})
    return handler.targets(), handler.fetches()
