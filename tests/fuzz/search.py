"""Look for an input that a reader does not bear, and keep the smallest that was found."""

import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.repository import ROOT

FOUND = Path(__file__).with_name("found")
# Of the processor, for one input. It takes some hundredths where all is well.
MOST_SECONDS = 20
TRIES_TO_SHRINK = 300
OURS = {"psfleet", "trainer", "plugins"}


class SmallEnough(KeyboardInterrupt):
    """The input that was found need not become smaller."""


class TooLongError(Exception):
    """An input kept its reader busy for longer than any input may."""


@dataclass(frozen=True)
class Reader:
    """What reads what a host has made up. It must not raise for any of the `inputs`, but what it handles.

    `samples` are good data, which it reads to the end.
    """

    name: str
    samples: tuple[bytes, ...]
    inputs: st.SearchStrategy[bytes]
    read: Callable[[bytes], object]


@dataclass
class Search:
    """The search for inputs that a reader does not bear: how many it has tried, and what it has found."""

    reader: Reader
    tried: int = 0
    # Where it was raised -> the smallest input that does so.
    found: dict[str, bytes] = field(default_factory=dict)

    def go_on(self, number: int, examples: int) -> None:
        """Try so many inputs, those of a `number`; where one is found, look for the smallest like it."""
        goal, smallest, left = "", b"", TRIES_TO_SHRINK

        @seed(number)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        @given(self.reader.inputs)
        def holds(content: bytes) -> None:
            nonlocal goal, smallest, left
            self.tried += 1
            left -= bool(goal)
            if left < 0:
                raise SmallEnough
            fault = fault_of(self.reader, content)
            if fault and fault not in self.found and goal in {"", fault}:
                if not goal or len(content) <= len(smallest):
                    goal, smallest = fault, content
                raise AssertionError(fault)

        try:
            holds()
        except (Exception, SmallEnough):
            if not goal:
                raise
            self.found[goal] = smallest


def fault_of(reader: Reader, content: bytes) -> str:
    """Return what the reader raises for this input, and where; "" where it bears it."""
    try:
        with _not_for_ever():
            reader.read(content)
    except Exception as error:
        ours = [
            frame for frame in traceback.extract_tb(error.__traceback__) if _is_ours(Path(frame.filename))
        ]
        where = f"{Path(ours[-1].filename).stem}.{ours[-1].name}" if ours else "what it calls"
        return f"{type(error).__name__} in {where}"
    return ""


def _is_ours(file: Path) -> bool:
    return file.is_relative_to(ROOT) and file.relative_to(ROOT).parts[0] in OURS


@contextmanager
def _not_for_ever() -> Iterator[None]:
    def give_up(_number: int, _frame: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
