"""Ends what takes too long in an action, such as a host that never answers."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


class TooLateError(BaseException):
    """Something took too long; its text is the time that it had. Ansible may catch an Exception."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TooLateError if the block takes longer. Each action runs in the main thread of a process."""

    def give_up(_number: int, _frame: object) -> None:
        raise TooLateError(f"{seconds:.0f} s")

    others = signal.signal(signal.SIGALRM, give_up)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
        signal.signal(signal.SIGALRM, others)
