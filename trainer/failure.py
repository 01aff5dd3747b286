"""How a task ends early, said with an exit code and a reason."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from trainer.console import say
from trainer.exit_codes import FAILURE_CLASSES, PROGRAM
from trainer.records import RecordWriter


class TaskFailure(Exception):  # noqa: N818 - "failure" is the word of the records
    """The task cannot go on, and its run with it."""

    def __init__(self, code: int, reason: str) -> None:
        """Take the exit code of trainer/exit_codes.py and the reason in words."""
        super().__init__(reason)
        self.code = code
        self.reason = reason

    @property
    def failure_class(self) -> str:
        """The `class` of the `failed` record."""
        return FAILURE_CLASSES[self.code]


class RunEnding(Exception):  # noqa: N818 - not an error
    """Another task has said on the ps that the run ends: STOPPED, or the exit code of its failure."""

    def __init__(self, code: int, reason: str) -> None:
        """Take the stop code and the reason that the ps hold."""
        super().__init__(reason)
        self.code = code
        self.reason = reason


class StopRequested(Exception):  # noqa: N818 - not an error
    """The task got SIGTERM or SIGINT."""


def recorded(work: Callable[[], int], records: RecordWriter, task: str) -> int:
    """Do the work of a task and return its exit code; a failure is recorded and said."""
    try:
        return work()
    except TaskFailure as failure:
        code, reason = failure.code, failure.reason
    except Exception as error:  # whatever the program raises
        traceback.print_exc()
        code, reason = PROGRAM, f"{type(error).__name__}: {error}"
    records.write("failed", {"class": FAILURE_CLASSES[code], "reason": reason})
    say(f"{task} failed ({FAILURE_CLASSES[code]}): {reason}")
    return code
