"""How a task ends early, said with an exit code and a reason."""

import traceback
from collections.abc import Callable

from trainer.contract.exit_codes import FAILURE_CLASSES, PROGRAM
from trainer.contract.records import RecordWriter
from trainer.host.error_lines import error_in_short
from trainer.process.console import say


class _Ending(Exception):  # noqa: N818 - not every end is an error
    """An exit code of trainer/contract/exit_codes.py, or a stop code, and the reason in words."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class TaskFailure(_Ending):
    """The task cannot go on, and its run with it."""


class RunEnding(_Ending):
    """Another task has said on the ps that the run ends: STOPPED, or the exit code of its failure."""


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
        code, reason = PROGRAM, error_in_short(error)
    records.write("failed", {"class": FAILURE_CLASSES[code], "reason": reason})
    say(f"{task} failed ({FAILURE_CLASSES[code]}): {reason}")
    return code
