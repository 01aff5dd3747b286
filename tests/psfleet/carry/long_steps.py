"""Replaces the reports of progress with ones that do not depend on time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from psfleet.carry.long_step import LONG_SECONDS


@contextmanager
def report_at_the_end(
    say: Callable[[str], object], what: Callable[[], str], interval_seconds: float = LONG_SECONDS
) -> Iterator[None]:
    """Report once at the end of the block what `report_progress` would report every so many seconds."""
    yield
    say(f"{what()} each {interval_seconds} s")
