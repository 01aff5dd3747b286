"""Counts the runs of TensorFlow 1's sessions that are training steps."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from psfleet_observer import graphs, meeting, serving, trained, training_runs
from psfleet_observer.guard import guarded, when_lost
from psfleet_observer.observed_steps import (
    ObservedSession,
    count_training,
    note_last_step,
    observer_of_process,
)

if TYPE_CHECKING:
    import tensorflow as tf

_RUNS_KEPT = 1000

_OWN = "_psfleet_observed"  # the attribute of a TensorFlow session that holds its ObservedSession
_meeting = threading.Lock()


def wrap_sessions(module: ModuleType) -> None:
    """Wrap sessions, to count the runs that are training steps, and to note what any run trains."""
    graphs.when_elsewhere(lambda: trained.note_unseen("it also computes gradients outside of sessions"))
    when_lost(trained.note_unseen)
    base = module.BaseSession
    _wrap_runs(base)
    _wrap_callables(base)
    _wrap_callables_from_options(base)
    close = base.close

    @functools.wraps(close)
    def closing(self: Any) -> Any:
        _close(self)
        return close(self)

    base.close = closing


def _wrap_runs(base: Any) -> None:
    run = base._do_run

    @functools.wraps(run)
    def counting(
        self: Any, handle: Any, target_list: Any, fetch_list: Any, feed_dict: Any, *options: Any
    ) -> Any:
        trains = _note_run(self, target_list, fetch_list)
        step = _begin(self, target_list, fetch_list, feed_dict) if handle is None else None
        if step is None:
            results = run(self, handle, target_list, fetch_list, feed_dict, *options)
            count_training(int(bool(trains)))
            return results
        began = time.monotonic()
        with _running(self) as readings:
            results = run(self, handle, target_list, [*fetch_list, *step.extra_fetches], feed_dict, *options)
        if not step.first_seconds:
            step.first_seconds.append(time.monotonic() - began)
        count_training(step.steps if trains else 0)
        _count_step(self, step, results, readings)
        return results[: len(fetch_list)]

    base._do_run = counting


def _wrap_callables(base: Any) -> None:
    make_callable = base.make_callable

    @functools.wraps(make_callable)
    def counting_callable(self: Any, fetches: Any, feed_list: Any = None, *more: Any, **named: Any) -> Any:
        call = make_callable(self, fetches, feed_list, *more, **named)
        # A callable with feeds calls `_do_run`, which is counted above.
        flat = None if feed_list is not None else _flat(self, fetches)
        if flat is None or not graphs.trains(self.graph):
            return call

        def counted(*arguments: Any, **options: Any) -> Any:
            trains, step = _note_run(self, *flat), _begin(self, *flat, {})
            if step is None:
                result = call(*arguments, **options)
                count_training(int(bool(trains)))
                return result
            with _running(self) as readings:
                result = call(*arguments, **options)
            count_training(step.steps if trains else 0)
            _count_step_of_callable(self, step.without_extra, fetches, result, readings)
            return result

        return counted

    base.make_callable = counting_callable


def _wrap_callables_from_options(base: Any) -> None:
    """Wrap the callables that Keras makes: their training is noted, but not counted as steps."""
    make_callable = base._make_callable_from_options

    @functools.wraps(make_callable)
    def noting_callable(self: Any, callable_options: Any) -> Any:
        call = make_callable(self, callable_options)
        ran = _of_options(self, callable_options) if graphs.trains(self.graph) else None
        if not ran:
            return call

        def noted(*arguments: Any, **options: Any) -> Any:
            trains = _note_run(self, *ran)
            result = call(*arguments, **options)
            count_training(int(bool(trains)))
            return result

        return noted

    base._make_callable_from_options = noting_callable


def wrap_last_step(module: ModuleType) -> None:
    """Wrap StopAtStepHook, to note the global step at which the program will stop."""
    initialise = module.StopAtStepHook.__init__

    @functools.wraps(initialise)
    def noting(self: Any, num_steps: Any = None, last_step: Any = None) -> None:
        initialise(self, num_steps, last_step)
        note_last_step(last_step)

    module.StopAtStepHook.__init__ = noting


def wrap_servers(module: ModuleType) -> None:
    """Wrap servers, so that each ps publishes its nonce, and a note says when a process only serves."""
    serving.wrap_join(module)
    start = module.Server.start  # `__init__` calls this, too, except with `start=False`
    started: WeakSet[Any] = WeakSet()

    @functools.wraps(start)
    def publishing(self: Any) -> None:
        start(self)
        if self not in started:
            started.add(self)
            _publish_nonce(self)

    module.Server.start = publishing


@guarded
def _publish_nonce(server: tf.distribute.Server) -> None:
    name = f"{server.server_def.job_name}{server.server_def.task_index}"
    observer = observer_of_process() if name.startswith("ps") else None
    if observer is not None and observer.task.name == name:
        observer.task.start({"observed": "a server"}, 0, observer.nonce)
        observer.serves = True
        meeting.publish_nonce(server, name, observer.nonce)


@guarded
def _note_run(
    session: tf.compat.v1.Session, targets: Sequence[tf.Operation], fetches: Sequence[tf.Tensor]
) -> bool:
    """Return whether a run trains the model, whether or not its steps are counted; record what it trains."""
    return trained.note_run(session, targets, fetches)


@guarded
def _of_options(session: tf.compat.v1.Session, options: Any) -> tuple[list[tf.Operation], list[tf.Tensor]]:
    """Return (the operations, the tensors) that a callable runs; `options` is its CallableOptions."""
    find = session.graph.as_graph_element
    return [find(name, allow_tensor=False) for name in options.target], [find(name) for name in options.fetch]


@guarded
def _begin(
    session: tf.compat.v1.Session, targets: Sequence[Any], fetches: Sequence[Any], feeds: Any
) -> training_runs.Step | None:
    """Return the training step that a run is about to take.

    Return None if the run is no step, or is not to be recorded. This is called for every run, when the
    processor's caches are full of the model, so that even a few lines take 30 us.
    """
    own = session.__dict__.get(_OWN) or _meet(session)
    if own is None:
        return None
    key = (*map(id, targets), 0, *map(id, fetches))
    step = own.steps[key] if key in own.steps else _analyse_run(session, own, targets, fetches)
    if step is None or own.lost or not (own.begun or _begun(session, own, step)):
        return None
    extra = step.extra_fetches
    if not extra or (own.is_extra_due(step) and not any(tensor.ref() in feeds for tensor in extra)):
        return step
    return step.without_extra


@contextlib.contextmanager
def _running(session: tf.compat.v1.Session) -> Iterator[int]:
    """Return a context for a step, from its begin until it fails or is counted.

    The context gives the number of readings before the step, for `Observer.count`.
    """
    observer = session.__dict__[_OWN].observer
    readings = observer.enter()
    try:
        yield readings
    except BaseException:
        observer.leave(readings)
        raise


def _meet(session: tf.compat.v1.Session) -> ObservedSession | None:
    """Return the state of a session, which the first call makes.

    Return None if the session's graph counts no training steps, or if this process is not observed.
    """
    if not graphs.trains(session.graph) or not training_runs.counters_of(session.graph):
        return None  # this is also the case for the observer's own sessions
    with _meeting:
        observer = observer_of_process() if _OWN not in session.__dict__ else None
        if observer is not None:
            session.__dict__[_OWN] = observer.meet(session)
        own: ObservedSession | None = session.__dict__.get(_OWN)
        return own


def _analyse_run(
    session: tf.compat.v1.Session, own: ObservedSession, targets: Sequence[Any], fetches: Sequence[Any]
) -> training_runs.Step | None:
    """Return the training step in a run of these operations, and keep it for later; None if it is no step."""
    if len(own.steps) >= _RUNS_KEPT:
        own.steps.clear()
        own.references.clear()
    own.references.append((targets, fetches))  # a reference, so that no other object gets their ids
    step = training_runs.step_of(session.graph, targets, fetches)
    own.steps[(*map(id, targets), 0, *map(id, fetches))] = step
    own.begun = own.begun and step is None  # a new kind of step may train other variables
    return step


def _begun(session: tf.compat.v1.Session, own: ObservedSession, step: training_runs.Step) -> bool:
    observer = observer_of_process()
    if observer is not None:
        observer.begin(session, own, step)
    return bool(own.recorded) and not own.lost


@guarded
def _count_step(
    session: tf.compat.v1.Session, step: training_runs.Step, results: Sequence[Any], readings: int
) -> None:
    own = session.__dict__[_OWN]
    loss = None if step.loss_index is None else float(results[step.loss_index])
    if loss is not None and not step.certain and not math.isfinite(loss):
        loss = None  # the program may have skipped the step because of it
    if step.probes:
        own.observer.see(results[len(results) - len(step.probes) :])
    own.observer.count(own, step, loss, readings)


@guarded
def _close(session: tf.compat.v1.Session) -> None:
    own = session.__dict__.get(_OWN)
    if own is not None:
        own.close()


@guarded
def _count_step_of_callable(
    session: tf.compat.v1.Session, step: training_runs.Step, fetches: Any, result: Any, readings: int
) -> None:
    """Count a step; its loss is known only if it is in `result`, what the callable returned for `fetches`."""
    is_list = isinstance(fetches, list | tuple)
    places = [place for place, tensor in enumerate(fetches if is_list else [fetches]) if tensor is step.loss]
    placed = replace(step, loss_index=next(iter(places), None))
    _count_step(session, placed, result if is_list else [result], readings)


@guarded
def _flat(session: tf.compat.v1.Session, fetches: object) -> tuple[list[tf.Operation], list[tf.Tensor]]:
    from tensorflow.python.client.session import _FetchHandler

    handler = _FetchHandler(session.graph, fetches, {})
    return handler.targets(), handler.fetches()
