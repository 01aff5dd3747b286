"""Tasks that wait no longer for each other than they need to."""

from __future__ import annotations

import functools
import time
from types import ModuleType
from typing import Any

_SECONDS_BETWEEN_LOOKS = 0.5
_QUEUE_RUNNER, _SECONDS_FOR_QUEUE_RUNNERS = "QueueRunnerThread", 2.0


def look_often(module: ModuleType) -> None:
    """Let a worker look for the chief's variables often, not every 30 s: meanwhile the others train alone."""
    initialise = module.SessionManager.__init__

    @functools.wraps(initialise)
    def looking(self: Any, *arguments: Any, **named: Any) -> None:
        initialise(self, *arguments, **named)
        self._recovery_wait_secs = min(self._recovery_wait_secs, _SECONDS_BETWEEN_LOOKS)

    module.SessionManager.__init__ = looking


def end_soon(module: ModuleType) -> None:
    """Wait 2 s, not two minutes, for a queue that is not read any more, as the chief's of SyncReplicas."""
    join = module.Coordinator.join

    @functools.wraps(join)
    def joining(self: Any, threads: Any = None, *arguments: Any, **named: Any) -> Any:
        if self.should_stop():
            with self._lock:
                threads = self._registered_threads.union(threads or ())
                filling = {thread for thread in threads if thread.name.startswith(_QUEUE_RUNNER)}
                self._registered_threads, threads = set(), threads - filling
            # They end by the end of the session, which is no failure of theirs.
            self._clean_stop_exception_types += (module.errors.CancelledError,)
            until = time.monotonic() + _SECONDS_FOR_QUEUE_RUNNERS
            for thread in filling:
                thread.join(max(0.0, until - time.monotonic()))
        return join(self, threads, *arguments, **named)

    module.Coordinator.join = joining
