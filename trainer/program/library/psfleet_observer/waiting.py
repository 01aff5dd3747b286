"""Lines in the log of a task that waits for variables which no task has initialised.

TensorFlow logs this wait at a level that is off by default, and polls for ever.
"""

from __future__ import annotations

import functools
import threading
from types import ModuleType
from typing import Any

from psfleet_observer.guard import say

_SECONDS_UNTIL_SAID = 20.0


def wrap_session_managers(module: ModuleType) -> None:
    """Let session managers log every 20 s that they wait for others' variables."""
    wait_for_session = module.SessionManager.wait_for_session

    @functools.wraps(wait_for_session)
    def waiting(*arguments: Any, **named: Any) -> Any:
        is_over = threading.Event()
        threading.Thread(target=_say_until, args=(is_over,), daemon=True).start()
        try:
            return wait_for_session(*arguments, **named)
        finally:
            is_over.set()

    module.SessionManager.wait_for_session = waiting


def _say_until(is_over: threading.Event) -> None:
    while not is_over.wait(_SECONDS_UNTIL_SAID):
        say("it waits for variables that no task has initialised")
