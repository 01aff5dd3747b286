"""A shorter wait of the chief for threads that nobody needs any more."""

from __future__ import annotations

import functools
import time
from types import ModuleType
from typing import Any

_QUEUE_RUNNER, _SECONDS_FOR_QUEUE_RUNNERS = "QueueRunnerThread", 2.0


def end_soon(module: ModuleType) -> None:
    """Wrap coordinators, so that `join` waits 2 s, not two minutes, for threads that fill queues.

    This is so only once the coordinator should stop. The chief of a program with SyncReplicasOptimizer has
    such threads.
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
