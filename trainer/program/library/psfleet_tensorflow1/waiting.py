"""Shorter waits of tasks for each other."""

from __future__ import annotations

import functools
import time
from types import ModuleType
from typing import Any

_POLL_SECONDS = 0.5
_QUEUE_RUNNER, _SECONDS_FOR_QUEUE_RUNNERS = "QueueRunnerThread", 2.0


def poll_often(module: ModuleType) -> None:
    """Let a worker poll twice a second for the chief's variables, not every 30 s.

    While a worker waits, the others train without it.
    """
    initialise = module.SessionManager.__init__

    @functools.wraps(initialise)
    def polling(self: Any, *arguments: Any, **named: Any) -> None:
        initialise(self, *arguments, **named)
        self._recovery_wait_secs = min(self._recovery_wait_secs, _POLL_SECONDS)

    module.SessionManager.__init__ = polling


def end_soon(module: ModuleType) -> None:
    """Wait 2 s, not two minutes, for threads that fill a queue which is not read any more.

    The chief of a program with SyncReplicasOptimizer has such threads.
    """
    join = module.Coordinator.join

    @functools.wraps(join)
    def joining(self: Any, threads: Any = None, *arguments: Any, **named: Any) -> Any:
        if self.should_stop():
            with self._lock:
                threads = self._registered_threads.union(threads or ())
                filling = {thread for thread in threads if thread.name.startswith(_QUEUE_RUNNER)}
                self._registered_threads, threads = set(), threads - filling
            # The end of the session cancels these threads, which is no failure.
            self._clean_stop_exception_types += (module.errors.CancelledError,)
            until = time.monotonic() + _SECONDS_FOR_QUEUE_RUNNERS
            for thread in filling:
                thread.join(max(0.0, until - time.monotonic()))
        return join(self, threads, *arguments, **named)

    module.Coordinator.join = joining
