"""Ends what takes too long, such as waiting for a host that never answers, or searching for a pattern."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TooLateError(BaseException):
    """Something took too long; the text is the time that it had, such as "5 s".

    It is not an Exception, because Ansible may catch those.
    """


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TooLateError in the block as soon as the block has run for `seconds`.

    In threads other than the main thread there is no deadline. Each action of Ansible runs in a main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(_number: int, _frame: object) -> None:
        raise TooLateError(f"{seconds:.0f} s")

    others = signal.signal(signal.SIGALRM, give_up)
    left, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
        signal.signal(signal.SIGALRM, others)
