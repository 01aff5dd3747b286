"""Runs that are measured, with a second try, because TensorFlow refuses a call once in a while."""

import sys
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

from benchmarks.figures import Figures
from benchmarks.results import seconds_text
from benchmarks.run import Marks, Run, RunFailed

_ATTEMPTS = 2


class Attempts:
    """The runs of a benchmark, each of which may be tried twice.

    `failures` has a text for each failed try; `is_whole` is False once a run has failed twice.
    """

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self.failures: list[str] = []
        self.is_whole = True

    def measure(self, where: str, folder: Path, run_in: Callable[[Path], Run]) -> Figures | None:
        """Measure a run; return its figures. After a failure try it once more; return None if it fails again.

        `run_in` makes the run, given a new folder below `folder`; `folder` is removed afterwards. `where`
        names the run in printed lines and in `failures`.
        """
        for attempt in range(_ATTEMPTS):
            found = self._measure_once(run_in, folder / str(attempt))
            # The checkpoints of a large model are large.
            rmtree(folder, ignore_errors=True)
            if not isinstance(found, RunFailed):
                speed, seconds = found["examples_per_second"], seconds_text(found["seconds_to_loss"])
                say(f"{where}: {speed:,.0f} examples/s, seconds to the loss: {seconds}")
                return found
            self.failures.append(f"{where}: {found}")
            say(self.failures[-1])
        self.is_whole = False
        return None

    def _measure_once(self, run_in: Callable[[Path], Run], folder: Path) -> Figures | RunFailed:
        try:
            with run_in(folder) as run:
                return run.measure(self._marks)
        except RunFailed as error:
            return error


def say(text: str) -> None:
    """Print one line, and flush it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def end_in_order(number: int, _frame: object) -> None:
    """Handle a signal: exit by an exception, with 128 + its number, so that everything started ends."""
    sys.exit(128 + number)
