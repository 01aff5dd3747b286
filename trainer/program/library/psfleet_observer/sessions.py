"""Counts the runs of TensorFlow 1's sessions that are training steps."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

from psfleet_observer import graphs, meeting, training_runs
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
        with _running(self) as looks:
            results = run(self, handle, target_list, [*fetch_list, *step.more], feed_dict, *options)
        _took(self, step, results, looks)
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
            if step is None:
                return call(*arguments, **options)
            with _running(self) as looks:
                result = call(*arguments, **options)
            _took_by_callable(self, step.bare, fetches, result, looks)
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
) -> training_runs.Step | None:
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
    if not step.more or (own.wants_more(step) and not any(of.ref() in feeds for of in step.more)):
        return step
    return step.bare


@contextlib.contextmanager
def _running(session: tf.compat.v1.Session) -> Iterator[int]:
    """Note that a step is running, until it fails or was counted; the context holds the looks before it."""
    observer = session.__dict__[_OWN].observer
    looks = observer.enter()
    try:
        yield looks
    except BaseException:
        observer.leave(looks)
        raise


def _meet(session: tf.compat.v1.Session) -> Session | None:
    """Return what is known of a session from now on; None where its graph counts no steps of training."""
    if not graphs.trains(session.graph) or not training_runs.counters_of(session.graph):
        return None  # nor do those of the observer, which runs in them what it asks of the ps
    with _meeting:
        observer = observer_of_process() if _OWN not in session.__dict__ else None
        if observer is not None:
            session.__dict__[_OWN] = observer.meet(session)
        own: Session | None = session.__dict__.get(_OWN)
        return own


def _know(
    session: tf.compat.v1.Session, own: Session, targets: Sequence[Any], fetches: Sequence[Any]
) -> training_runs.Step | None:
    if len(own.steps) >= _RUNS_KEPT:
        own.steps.clear()
        own.kept.clear()
    own.kept.append((targets, fetches))  # so that nothing else gets their ids
    step = training_runs.step_of(session.graph, targets, fetches)
    own.steps[(*map(id, targets), 0, *map(id, fetches))] = step
    own.begun = own.begun and step is None  # it may train what no step before it did
    return step


def _begun(session: tf.compat.v1.Session, own: Session, step: training_runs.Step) -> bool:
    observer = observer_of_process()
    if observer is not None:
        observer.begin(session, own, step)
    return bool(own.told) and not own.lost


@guarded
def _took(
    session: tf.compat.v1.Session, step: training_runs.Step, results: Sequence[Any], looks: int
) -> None:
    own = session.__dict__[_OWN]
    loss = None if step.place is None else float(results[step.place])
    if loss is not None and not step.certain and not math.isfinite(loss):
        loss = None  # as where a step is skipped for it
    if step.probes:
        own.observer.see(results[len(results) - len(step.probes) :])
    own.observer.took(own, step, loss, looks)


@guarded
def _close(session: tf.compat.v1.Session) -> None:
    own = session.__dict__.get(_OWN)
    if own is not None:
        own.close()


@guarded
def _took_by_callable(
    session: tf.compat.v1.Session, step: training_runs.Step, fetches: Any, result: Any, looks: int
) -> None:
    """Count a step whose loss is known where it is one of what the callable gives."""
    listed = isinstance(fetches, list | tuple)
    places = [place for place, of in enumerate(fetches if listed else [fetches]) if of is step.loss]
    _took(session, replace(step, place=next(iter(places), None)), result if listed else [result], looks)


@guarded
def _flat(session: tf.compat.v1.Session, fetches: object) -> tuple[list[tf.Operation], list[tf.Tensor]]:
    from tensorflow.python.client.session import _FetchHandler

    handler = _FetchHandler(session.graph, fetches, {})
    return handler.targets(), handler.fetches()
