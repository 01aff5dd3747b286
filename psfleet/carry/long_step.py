"""Reports the progress of steps that take long."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

REPORT_SECONDS = 5  # for steps that can be measured
LONG_SECONDS = 10  # for others
MEGABYTE = 1_000_000


@contextmanager
def report_progress(
    say: Callable[[str], object],
    what: Callable[[], str],
    interval_seconds: float = LONG_SECONDS,
    since: float | None = None,
) -> Iterator[None]:
    """Call `say` every `interval_seconds` of the block, with what `what` returns and the elapsed seconds.

    If `what` returns "", nothing is reported. The same words are reported again only once twice as many
    seconds have passed. `since` is when the step began, in seconds of the monotonic clock, if that was before
    the block. Example of a line: "  12 MB read, 10 s"
    """
    over, started = threading.Event(), time.monotonic() if since is None else since

    def report() -> None:
        said, due = "", 0.0
        while not over.wait(interval_seconds):
            words, seconds = what(), time.monotonic() - started
            if words and (words != said or seconds >= due):
                say(f"  {words}, {seconds:.0f} s")
                said, due = words, 2 * seconds

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        over.set()
        reporter.join()


def bytes_read(path: Path) -> int:
    """Return how many bytes of a file the children of this process have read; 0 if none has the file open.

    If several have it open, the one that has read most counts.
    """
    children = [
        Path("/proc", child)
        for listed in Path("/proc/self/task").glob("*/children")
        for child in listed.read_text(encoding="ascii").split()
    ]
    positions = [0]
    for child in children:
        with suppress(OSError):  # the process may have ended
            for descriptor in (child / "fd").iterdir():
                if descriptor.readlink() == path:
                    details = (child / "fdinfo" / descriptor.name).read_text(encoding="ascii")
                    positions.append(int(details.split()[1]))  # pos: 1234
    return max(positions)
