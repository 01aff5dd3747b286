"""Exceptions by which a task ends early, with an exit code and a reason."""

import traceback
from collections.abc import Callable
from pathlib import Path

from trainer.contract.exit_codes import FAILURE_CLASSES, OUT_OF_MEMORY, PROGRAM
from trainer.contract.records import RecordWriter
from trainer.host.error_lines import error_in_short, is_out_of_memory
from trainer.host.memory import memory_bytes
from trainer.process.console import say

_GIB = 1 << 30


class _Ending(Exception):  # noqa: N818 - not every end is an error
    """An early end, for `reason`; `code` is an exit code of trainer/contract/exit_codes.py, or RUN_OVER."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class TaskFailure(_Ending):
    """The task has failed for `reason`, and ends with the exit code `code`."""


class RunEnding(_Ending):
    """Another task has ended the run: it wrote this `code` on the ps.

    It is STOPPED, RUN_OVER, or the exit code of a failure. `reason` is "" if it was not read.
    """


class StopRequested(Exception):  # noqa: N818 - not an error
    """The task got SIGTERM or SIGINT."""


def failure_of(error: Exception) -> TaskFailure:
    """Return the TaskFailure for an unexpected exception: `out_of_memory` if memory ran out, else `program`.

    Its reason is the exception in at most five lines, with a remedy if memory ran out.
    """
    reason = error_in_short(error)
    if isinstance(error, MemoryError) or is_out_of_memory(reason):
        return TaskFailure(OUT_OF_MEMORY, f"{reason}\n{memory_remedy()}")
    return TaskFailure(PROGRAM, reason)


def memory_remedy(root: Path = Path("/")) -> str:
    """Return a sentence about the host's memory (GiB, or "too little" if unknown), and what helps.

    `root` is the directory in which proc/ and sys/ are.
    """
    least = memory_bytes(root)
    has = "its host has too little memory" if least is None else f"its host has {least / _GIB:.1f} GiB"
    return f"{has}: a smaller batch or model, fewer tasks on this host, or more memory helps"


def with_failure_record(work: Callable[[], int], records: RecordWriter, task: str) -> int:
    """Return `work()`; if it raises, write a `failed` record, print a line, and return an exit code.

    The exit code is that of the TaskFailure, or for every other Exception that of `failure_of`, after the
    traceback was printed.
    """
    try:
        return work()
    except TaskFailure as failure:
        code, reason = failure.code, failure.reason
    except Exception as error:  # any other exception is an error of the program
        traceback.print_exc()
        ending = failure_of(error)
        code, reason = ending.code, ending.reason
    records.write("failed", {"class": FAILURE_CLASSES[code], "reason": reason})
    say(f"{task} failed ({FAILURE_CLASSES[code]}): {reason}")
    return code
