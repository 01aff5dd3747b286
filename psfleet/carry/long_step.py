"""What is said while a step takes long."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

REPORT_SECONDS = 5  # where something is counted
LONG_SECONDS = 10  # where there is no more to say than that it goes on
MEGABYTE = 1_000_000


@contextmanager
def told(
    say: Callable[[str], object],
    what: Callable[[], str],
    interval_seconds: float = LONG_SECONDS,
    since: float | None = None,
) -> Iterator[None]:
    """Every `interval_seconds` of the block, say what `what` returns, if anything, and for how long.

    `since` is when it began by the monotonic clock, if that was before the block.
    """
    over, started = threading.Event(), time.monotonic() if since is None else since

    def tell() -> None:
        while not over.wait(interval_seconds):
            if words := what():
                say(f"  {words}, {time.monotonic() - started:.0f} s")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def bytes_read(path: Path) -> int:
    """Return how far the programs that this process has started have read a file; 0 where none reads it."""
    children = [
        Path("/proc", child)
        for listed in Path("/proc/self/task").glob("*/children")
        for child in listed.read_text(encoding="ascii").split()
    ]
    positions = [0]
    for child in children:
        with suppress(OSError):  # it may end meanwhile
            for descriptor in (child / "fd").iterdir():
                if descriptor.readlink() == path:
                    details = (child / "fdinfo" / descriptor.name).read_text(encoding="ascii")
                    positions.append(int(details.split()[1]))  # pos: 1234
    return max(positions)
