"""Exceptions by which a task ends early, with an exit code and a reason."""

import traceback
from collections.abc import Callable

from trainer.contract.exit_codes import FAILURE_CLASSES, PROGRAM
from trainer.contract.records import RecordWriter
from trainer.host.error_lines import error_in_short
from trainer.process.console import say


class _Ending(Exception):  # noqa: N818 - not every end is an error
    """An early end: an exit code of trainer/contract/exit_codes.py or a stop code, and the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class TaskFailure(_Ending):
    """The task has failed, and ends with the exit code of its failure."""


class RunEnding(_Ending):
    """Another task has ended the run, by a code on the ps: STOPPED, or the exit code of its failure."""


class StopRequested(Exception):  # noqa: N818 - not an error
    """The task got SIGTERM or SIGINT."""


def with_failure_record(work: Callable[[], int], records: RecordWriter, task: str) -> int:
    """Do the work of a task and return its exit code; write a record and a line if it fails."""
    try:
        return work()
    except TaskFailure as failure:
        code, reason = failure.code, failure.reason
    except Exception as error:  # any other exception is an error of the program
        traceback.print_exc()
        code, reason = PROGRAM, error_in_short(error)
    records.write("failed", {"class": FAILURE_CLASSES[code], "reason": reason})
    say(f"{task} failed ({FAILURE_CLASSES[code]}): {reason}")
    return code
