"""Steps that are told of as if each took long."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from psfleet.carry.long_step import LONG_SECONDS


@contextmanager
def told_at_the_end(
    say: Callable[[str], object], what: Callable[[], str], interval_seconds: float = LONG_SECONDS
) -> Iterator[None]:
    """In place of `told`: say once, in the end, what would be said each so many seconds."""
    yield
    say(f"{what()} each {interval_seconds} s")
