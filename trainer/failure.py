"""How a task ends early, said with an exit code and a reason."""

from __future__ import annotations

from trainer.exit_codes import FAILURE_CLASSES


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
