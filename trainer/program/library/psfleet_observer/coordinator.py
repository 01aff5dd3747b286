"""Counts the steps of each worker in the process of TensorFlow 2's coordinator, which hands steps out.

A worker of a `ClusterCoordinator` only serves and cannot count its steps, so the coordinator's process
records the steps of all workers.
"""

from __future__ import annotations

import atexit
import functools
import threading
import time
from collections import Counter
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from psfleet_observer.graphs import place_of_loss, writes
from psfleet_observer.guard import guarded, stop
from psfleet_observer.process import end, task_of_process

if TYPE_CHECKING:
    from psfleet_records import Task

_SECONDS_FOR_LOSSES = 5.0
_LOSS = "_psfleet_loss"


@dataclass
class _Loss:
    """The loss of one step.

    `place` is its index among the step's results; `step` is the step's number, 0 until the step is done.
    """

    place: int
    step: int = 0


class _FinishedSteps:
    """Counts and records all workers' finished steps, numbered from 1; the first `written` are in records.

    The process's exit calls `finish`, which ends the observation.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        # Worker -> how many steps it finished.
        self.done: Counter[str] = Counter()
        self.written = 0
        # Worker -> how many functions it finished that do not change the model, as far as the observer sees.
        self.others: Counter[str] = Counter()
        # Step -> its loss, if the program has fetched it.
        self.losses: dict[int, float] = {}
        self.written_at = time.monotonic()
        self.workers = [name for name in task.workers if name.startswith("worker")]
        self.lock = threading.Lock()
        task.start({"observed": "a coordinator"}, 0)
        atexit.register(self.finish)

    def add(self, worker: str, loss: _Loss | None, *, trains: bool) -> None:
        """Count a function that a worker has finished; it is a training step if it `trains`.

        Once a record's worth of steps has gathered, write them; wait up to 5 s before for the program to
        fetch their losses. `loss` is None if the function returns none.
        """
        with self.lock:
            (self.done if trains else self.others)[worker] += 1
            reached = self.done.total()
            self.task.contributions = [self.done[name] for name in self.workers]
            if loss is not None:
                loss.step = reached
            # The program may fetch its loss at any time, or never.
            waits = loss is not None and time.monotonic() - self.written_at < _SECONDS_FOR_LOSSES
            if reached - self.written >= self.task.windows.room and not waits:
                self.write(reached)
            elif trains:
                self.task.set_progress(reached, None)

    def see(self, step: int, loss: float) -> None:
        """Note the loss of step number `step`, which the program has fetched, unless the step is written."""
        with self.lock:
            if step > self.written:
                self.losses[step] = loss
                if step - self.written >= self.task.windows.room:
                    self.write(step)

    def write(self, reached: int) -> None:
        """Write one record of the unwritten steps up to number `reached`; nothing if there are none.

        A loss that the program has not fetched is None.
        """
        steps = range(self.written + 1, reached + 1)
        if steps:
            self.task.record_window([self.losses.pop(step, None) for step in steps], self.written, reached)
            self.written, self.written_at = reached, time.monotonic()

    @guarded
    def finish(self) -> None:
        """Record the remaining steps and the task's end, with the steps of each worker; end the observation.

        After an uncaught exception of the program, the end is `failed`, without these numbers.
        """
        with self.lock:
            self.write(self.done.total())
            stop()
            workers = sorted(self.done | self.others)
            end(self.task, {"contributions": {worker: self.done[worker] for worker in workers}})


_finished: list[_FinishedSteps] = []
# Function -> (whether it trains, the index of the loss among its results or None).
_functions: WeakKeyDictionary[Any, tuple[bool, int | None]] = WeakKeyDictionary()
_creating = threading.Lock()


def wrap_coordinator(module: ModuleType) -> None:
    """Wrap TensorFlow's closures, to count the functions that workers run.

    Functions that set workers up are not counted.
    """
    execute = module.Closure.execute_on

    @functools.wraps(execute)
    def counting(self: Any, worker: Any) -> Any:
        if type(self) is not module.Closure:
            return execute(self, worker)
        trains, loss = _analyse(self) or (False, None)
        result = execute(self, worker)
        _count(f"worker{worker.worker_index}", loss, trains=trains)
        return result

    module.Closure.execute_on = counting


def wrap_results(module: ModuleType) -> None:
    """Wrap TensorFlow's remote values, to note a loss that the program fetches."""
    get = module.RemoteValueImpl.get

    @functools.wraps(get)
    def noting(self: Any) -> Any:
        results = get(self)
        _see(self, results)
        return results

    module.RemoteValueImpl.get = noting


@guarded
def _analyse(closure: Any) -> tuple[bool, _Loss | None]:
    """Return (whether a closure trains, its loss or None); attach the loss to the closure's result."""
    function = getattr(closure, "_concrete_function", None)
    if function is None:
        return False, None
    with _creating:
        if function not in _functions:
            trains = _changes_the_model(function)
            _functions[function] = trains, place_of_loss(function) if trains else None
        trains, place = _functions[function]
    loss = None if place is None else _Loss(place)
    closure.maybe_call_with_output_remote_value(lambda value: setattr(value, _LOSS, loss))
    return trains, loss


@guarded
def _see(value: Any, results: Any) -> None:
    import tensorflow as tf

    loss: _Loss | None = getattr(value, _LOSS, None)
    if loss is not None and loss.step and _finished:
        setattr(value, _LOSS, None)  # a loss that is fetched again does not count again
        _finished[0].see(loss.step, float(tf.nest.flatten(results)[loss.place]))


@guarded
def _count(worker: str, loss: _Loss | None, *, trains: bool) -> None:
    with _creating:
        if not _finished and (task := task_of_process()) is not None:
            _finished.append(_FinishedSteps(task))
    if _finished:
        _finished[0].add(worker, loss, trains=trains)


def _changes_the_model(function: Any) -> bool:
    """Return whether a function writes a trainable variable, itself or in a function that it calls."""
    graph = function.graph
    trainable = {id(variable.handle) for variable in graph.trainable_variables}
    inside = {inner.name: id(outer) in trainable for outer, inner in graph.captures}
    nodes = graph.as_graph_def().node
    functions = {one.signature.name: one for one in graph.as_graph_def().library.function}
    handles = {name.partition(":")[0] for name, is_trainable in inside.items() if is_trainable}
    return writes(nodes, handles, functions)
