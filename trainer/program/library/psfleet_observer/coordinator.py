"""Counts what each worker has done for a coordinator of TensorFlow 2, which hands out all steps of a run.

A worker of a `ClusterCoordinator` serves, and knows of no step: the coordinator's process tells of all.
"""

from __future__ import annotations

import atexit
import functools
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from psfleet_observer.graphs import WRITING, names_of_functions
from psfleet_observer.guard import guarded, stop
from psfleet_observer.process import end, task_of_process

if TYPE_CHECKING:
    from psfleet_records import Task


class _Handed:
    """What was done, by worker; `written` of all of it."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.done: Counter[str] = Counter()
        self.written = 0
        # Of what changes no variable of the model, or may do so unseen.
        self.others: Counter[str] = Counter()
        self.lock = threading.Lock()
        task.start({"observed": "a coordinator"}, 0)
        atexit.register(self.finish)

    def add(self, worker: str, *, trains: bool) -> None:
        """Count a function that a worker has run to its end, which is a step where it trains."""
        with self.lock:
            (self.done if trains else self.others)[worker] += 1
            if self.done.total() - self.written >= self.task.windows.room:
                self.write()

    def write(self) -> None:
        """Write what is not written yet."""
        if count := self.done.total() - self.written:
            self.task.take([None] * count, self.written, self.written + count)
            self.written += count

    @guarded
    def finish(self) -> None:
        """Write what is left, and what each worker has done."""
        with self.lock:
            self.write()
            stop()
            workers = sorted(self.done | self.others)
            end(self.task, {"contributions": {worker: self.done[worker] for worker in workers}})


_handed: list[_Handed] = []
_training: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
_creating = threading.Lock()


def wrap_coordinator(module: ModuleType) -> None:
    """Count the functions that workers run for the coordinator; not what sets them up."""
    execute = module.Closure.execute_on

    @functools.wraps(execute)
    def counting(self: Any, worker: Any) -> Any:
        result = execute(self, worker)
        if type(self) is module.Closure:
            _count(f"worker{worker.worker_index}", getattr(self, "_concrete_function", None))
        return result

    module.Closure.execute_on = counting


@guarded
def _count(worker: str, function: Any) -> None:
    with _creating:
        if not _handed and (task := task_of_process()) is not None:
            _handed.append(_Handed(task))
        if function is not None and function not in _training:
            _training[function] = _changes_the_model(function)
    if _handed:
        _handed[0].add(worker, trains=function is not None and _training[function])


def _changes_the_model(function: Any) -> bool:
    """Whether a function writes a variable that is trainable, itself or in a function that it calls."""
    graph = function.graph
    trainable = {id(variable.handle) for variable in graph.trainable_variables}
    inside = {inner.name: id(outer) in trainable for outer, inner in graph.captures}
    nodes = graph.as_graph_def().node
    functions = {one.signature.name: one for one in graph.as_graph_def().library.function}
    handles = {name.partition(":")[0] for name, is_trainable in inside.items() if is_trainable}
    return _writes(nodes, handles, functions)


def _writes(nodes: Iterable[Any], handles: set[str], functions: Mapping[str, Any]) -> bool:
    """Whether one of these nodes writes one of the handles; `nodes` stand in the order of their inputs."""
    handles = set(handles)
    for node in nodes:
        taken = [place for place, name in enumerate(node.input) if name.partition(":")[0] in handles]
        if not taken:
            continue
        if node.op.startswith(WRITING):
            if 0 in taken:
                return True
        elif node.op == "Identity":
            handles.add(node.name)
        for called in names_of_functions(node.attr):
            if called in functions:
                # What a condition decides by is no argument of its branches.
                shift = 1 if node.op in {"If", "StatelessIf", "Case", "StatelessCase"} else 0
                arguments = functions[called].signature.input_arg
                given = {
                    arguments[place - shift].name for place in taken if 0 <= place - shift < len(arguments)
                }
                if _writes(functions[called].node_def, given, functions):
                    return True
    return False
