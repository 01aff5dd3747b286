"""The task of the observed process, if it is to be recorded, and the record of the process's end."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Mapping

import psfleet_records

from psfleet_observer.guard import say

_locks: list[int] = []
_tasks: list[psfleet_records.Task | None] = []


def task_of_process() -> psfleet_records.Task | None:
    """Return the task of this process, to record its steps.

    Return None if psfleet does not run the process, if the program records itself, or if another process of
    the task is observed.
    """
    return None if psfleet_records.recorded_by_program() else task_to_note()


def task_to_note() -> psfleet_records.Task | None:
    """Return the task of this process, to record events other than steps, even if the program records itself.

    Return None if psfleet does not run the process, or if another process of the task is observed.
    """
    if not _tasks:
        task = psfleet_records.task_to_observe()
        _tasks.append(task if task is not None and _lock_records(task) else None)
    return _tasks[0]


def end(task: psfleet_records.Task, known: Mapping[str, object]) -> None:
    """Record the process's end: `finished` with the reason "run over" and the fields `known`.

    If an uncaught exception ended the program, record `failed` instead, without `known`.
    """
    error = getattr(sys, "last_value", None)
    if error is None:
        task.finish("run over", known)
    else:
        task.fail(f"{type(error).__name__}: {error}")


def _lock_records(task: psfleet_records.Task) -> bool:
    """Lock the task's records until this process ends; return False if another process has locked them.

    In that case a line is logged. Return True, too, if there is no file of records.
    """
    try:
        _locks.append(os.open(task.records_file, os.O_RDONLY | os.O_CLOEXEC))
        fcntl.flock(_locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True  # the records could not be opened, which was reported already
    except BlockingIOError:
        say("another process of this task trains, too: the steps of this one are not recorded")
        return False
    return True
