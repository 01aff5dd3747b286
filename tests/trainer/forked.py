"""Tasks as forks of one process that has imported TensorFlow: each starts within 0.1 s instead of 4 s.

Their parent has nothing else: no module of the trainer, no session, no device. A fork then runs, in its own
directory and environment and as its `__main__`, what `python -m trainer` or `python program.py` runs.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.trainer.preloaded"])


class ForkedProcess:
    """One such process; it is used as a `subprocess.Popen`, and ends at the latest with the tests."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], output: Path
    ) -> None:
        """Start `-m MODULE ARGUMENTS...` or `FILE ARGUMENTS...`; what it prints is added to `output`."""
        output.touch()
        self._process = _FORKS.Process(
            target=_become, args=(list(command), folder, dict(environment), output), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int | None:
        """Its number."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return its exit code, negative where a signal ended it; None while it runs."""
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> None:
        """Wait for its end, so long at most."""
        self._process.join(seconds)

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None and self._process.pid is not None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        """End it at once, unless it has ended."""
        self.send_signal(signal.SIGKILL)


def _become(command: Sequence[str], folder: Path, environment: Mapping[str, str], output: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with output.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if command[0] == "-m":
        sys.argv = list(command[1:])
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(command)
        runpy.run_path(command[0], run_name="__main__")


def _end_with_parent() -> None:
    """End at once when the tests are gone, also where they were killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)
