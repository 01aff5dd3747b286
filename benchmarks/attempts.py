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
    """The runs of a benchmark.

    `failures` has a text for each failed try; `is_whole` is False once a run has failed twice.
    """

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self.failures: list[str] = []
        self.is_whole = True

    def measured(self, where: str, folder: Path, run_in: Callable[[Path], Run]) -> Figures | None:
        """Return the figures of a run in a new folder below `folder`; None if the run has failed twice.

        `run_in` makes the run, given its folder; `where` names the run in lines and failures.
        """
        for attempt in range(_ATTEMPTS):
            found = self._measured(run_in, folder / str(attempt))
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

    def _measured(self, run_in: Callable[[Path], Run], folder: Path) -> Figures | RunFailed:
        try:
            with run_in(folder) as run:
                return run.measure(self._marks)
        except RunFailed as error:
            return error


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def end_in_order(number: int, _frame: object) -> None:
    """End this process by an exception, so that everything that was started ends; a handler of signals."""
    sys.exit(128 + number)
