"""Look for inputs that a reader does not bear."""

import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.repository import ROOT

# For one input: of the processor, and of memory beside what the process has. Most take some hundredths, and
# some megabytes.
MOST_SECONDS = 20
MOST_BYTES = 1 << 30
OURS = {"psfleet", "trainer", "plugins"}


class TooLongError(Exception):
    """An input kept its reader busy for longer than any input may."""


@dataclass(frozen=True)
class Reader:
    """What reads what a host has made up. It must not raise for any of the `inputs`, but what it handles.

    `sample` is good data, which it reads to the end.
    """

    name: str
    sample: bytes
    inputs: st.SearchStrategy[bytes]
    read: Callable[[bytes], object]

    @property
    def found(self) -> Path:
        """Where the inputs are kept that it did not bear."""
        return Path(__file__).with_name("found") / self.name.replace(" ", "_")


def search(reader: Reader, number: int, examples: int) -> dict[str, bytes]:
    """Try so many inputs, those of a `number`. Return what was raised where, with the smallest input."""
    found: dict[str, bytes] = {}

    @seed(number)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(reader.inputs)
    def tried(content: bytes) -> None:
        if fault := fault_of(reader, content):
            found[fault] = min(found.get(fault, content), content, key=len)

    tried()
    return found


def fault_of(reader: Reader, content: bytes) -> str:
    """Return what the reader raises for this input, and where; "" where it bears it."""
    try:
        with _bounded():
            reader.read(content)
    except Exception as error:
        frames = [(Path(frame.filename), frame.name) for frame in traceback.extract_tb(error.__traceback__)]
        ours = [f"{file.stem}.{name}" for file, name in frames if _is_ours(file)]
        return f"{type(error).__name__} in {ours[-1] if ours else 'what it calls'}"
    return ""


def _is_ours(file: Path) -> bool:
    return file.is_relative_to(ROOT) and file.relative_to(ROOT).parts[0] in OURS


@contextmanager
def _bounded() -> Iterator[None]:
    """Let nothing take longer, or more memory, than any input may."""

    def give_up(_number: int, _frame: object) -> None:
        raise TooLongError

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGPROF, give_up)
    resource.setrlimit(resource.RLIMIT_AS, (taken + MOST_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
