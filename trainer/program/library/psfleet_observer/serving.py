"""A note for the launcher while this process only serves: its only thread waits in `Server.join()`.

Such a process never does anything else. A process with a further thread may still train in that thread.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any


def wrap_join(module: ModuleType) -> None:
    """Wrap servers, to write a note while the process's only thread waits in `join()`."""
    join = module.Server.join

    @functools.wraps(join)
    def joining(self: Any) -> Any:
        with _noted():
            return join(self)

    module.Server.join = joining


@contextmanager
def _noted() -> Iterator[None]:
    """Return a context in which the note exists, if the calling thread is the process's only thread.

    The note is removed at the end. trainer/program/serving_note.py reads it.
    """
    note = _note()
    if note is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    # This also counts threads that Python's `threading` did not start.
    only_thread = len(sys._current_frames()) == 1
    with suppress(OSError):
        if only_thread:
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(json.dumps({"pid": os.getpid()}), encoding="utf-8")
    try:
        yield
    finally:
        with suppress(OSError):
            if only_thread:
                note.unlink(missing_ok=True)


def _note() -> Path | None:
    variables = ("PSFLEET_RUN_DIRECTORY", "PSFLEET_JOB", "PSFLEET_TASK_INDEX")
    directory, job, index = map(os.environ.get, variables)
    return Path(directory, "endings", f"{job}{index}.serves.json") if directory and job and index else None
