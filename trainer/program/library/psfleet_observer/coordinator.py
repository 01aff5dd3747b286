"""Counts what each worker has done for a coordinator of TensorFlow 2, which hands out all steps of a run.

A worker of a `ClusterCoordinator` serves, and knows of no step: the coordinator's process tells of all.
"""

from __future__ import annotations

import atexit
import functools
import threading
from collections import Counter
from types import ModuleType
from typing import TYPE_CHECKING, Any

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
        self.lock = threading.Lock()
        task.start({"observed": "a coordinator"}, 0)
        atexit.register(self.finish)

    def add(self, worker: str) -> None:
        """Count a function that a worker has run to its end."""
        with self.lock:
            self.done[worker] += 1
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
            end(self.task, {"contributions": dict(self.done)})


_handed: list[_Handed] = []
_creating = threading.Lock()


def wrap_coordinator(module: ModuleType) -> None:
    """Count the functions that workers run for the coordinator; not what sets them up."""
    execute = module.Closure.execute_on

    @functools.wraps(execute)
    def counting(self: Any, worker: Any) -> Any:
        result = execute(self, worker)
        if type(self) is module.Closure:
            _count(f"worker{worker.worker_index}")
        return result

    module.Closure.execute_on = counting


@guarded
def _count(worker: str) -> None:
    with _creating:
        if not _handed and (task := task_of_process()) is not None:
            _handed.append(_Handed(task))
    if _handed:
        _handed[0].add(worker)
