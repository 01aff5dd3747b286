"""The process of a program: its start, its end together with its children, and the reason of a failure."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from trainer.contract.exit_codes import (
    CLUSTER_BROKE,
    FINISHED,
    NO_RESTART,
    OUT_OF_MEMORY,
    PROGRAM,
    STOPPED,
    USAGE,
)
from trainer.host.error_lines import first_cause_in, in_short, is_out_of_memory, last_words, source_lines_in
from trainer.process.console import say
from trainer.process.failure import memory_remedy
from trainer.process.lost_connection import is_lost_connection
from trainer.program.usage_errors import usage_alone_in, usage_error_in

_POLL_SECONDS = 0.2
_SECONDS_TO_STOP = 20.0
_KILLED = 128  # shells add the signal's number: the exit code of a killed process

_PYTHON_RAISED = 1  # Python's exit code after an uncaught exception
_ERRORS = Path("/proc/self/fd/2")
_TAIL_BYTES = 64 * 1024


@dataclass(frozen=True)
class Ending:
    """The end of a program.

    Attributes:
        code: the exit code for systemd.
        reason: why the program failed, in words; "" if it did not fail.
        stopped: whether the program was stopped.
        lines: the lines of Python in the traceback of the uncaught exception, the innermost last.

    """

    code: int
    reason: str = ""
    stopped: bool = False
    lines: tuple[str, ...] = ()

    @property
    def phase(self) -> str:
        """The phase in `progress.json`: "stopped" or, by `code`, "finished" (0) or "failed" (any other)."""
        if self.stopped:
            return "stopped"
        return "failed" if self.code else "finished"


class ProgramProcess:
    """A running program, in a session of its own.

    `has_listened` says whether the program was seen listening at its task's port. If it was, the program has
    accepted its command line, so its failure is no usage error.
    """

    has_listened = False

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], directory: Path) -> None:
        """Start the program in the folder `directory`; `command` is [Python, script, arguments..].

        Raises OSError if it cannot be started.
        """
        # What the file of standard error contains already was not written by the program.
        self._start_of_errors = _ERRORS.stat().st_size if _ERRORS.is_file() else None
        self._process = subprocess.Popen(
            command, cwd=directory, env=dict(environment), stdin=subprocess.DEVNULL, start_new_session=True
        )
        self._killed = False
        self._script = Path(command[1]).name

    @property
    def pid(self) -> int:
        """The pid of the program, which is also its session."""
        return self._process.pid

    def wait(self, stop: Event, tick: Callable[[], None]) -> Ending:
        """Wait without a limit for the program's end, and return it; call `tick` about five times a second.

        If `stop` is set, the program gets SIGTERM, and SIGKILL if it has not ended 20 s later. At the end,
        all other processes of its group, which it started, are killed.
        """
        try:
            while (code := self._poll()) is None:
                tick()
                if stop.is_set():
                    code = self._stop(tick)
                    break
        finally:
            self._kill_group()
        return self._ending(code, stopped=stop.is_set())

    def _poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(_POLL_SECONDS)
        return None

    def _stop(self, tick: Callable[[], None]) -> int:
        self._process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _SECONDS_TO_STOP
        while (code := self._poll()) is None:
            tick()
            if time.monotonic() > deadline and not self._killed:
                say(f"The program does not end {_SECONDS_TO_STOP:g} s after SIGTERM: killing it.")
                self._killed = True
                self._kill_group()
        return code

    def _kill_group(self) -> None:
        # The group has the program's pid, and exists as long as any process in it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _ending(self, code: int, *, stopped: bool) -> Ending:
        exit_code = code if code >= 0 else _KILLED - code
        if self._killed:
            return Ending(STOPPED, stopped=True)
        if exit_code == FINISHED and not (stopped or self.has_listened):
            # Many scripts print their usage and call exit(): exit code 0, which looks like a good end.
            usage = usage_alone_in(self._printed(), self._script)
            return Ending(USAGE, usage) if usage else Ending(FINISHED)
        if stopped or exit_code in {FINISHED, STOPPED}:
            return Ending(exit_code, stopped=stopped or exit_code == STOPPED)
        if code < 0:
            usual = ", as the kernel does where memory runs out" if code == -signal.SIGKILL else ""
            return Ending(exit_code, f"the program was killed by {signal.Signals(-code).name}{usual}")
        return self._failure(code)

    def _failure(self, code: int) -> Ending:
        """Return the end of a program that exited by itself with `code`, which is not 0.

        The reason is the uncaught exception, or the usage error, or the last line that the program printed.
        The exit code tells systemd what the reason is, such as USAGE or CLUSTER_BROKE; without a known reason
        it is `code`.
        """
        printed = self._printed()
        exception = first_cause_in(printed)
        if exception and code == _PYTHON_RAISED and is_out_of_memory(exception):
            return Ending(OUT_OF_MEMORY, f"{in_short(exception)}\n{memory_remedy()}")
        if exception:
            reason = in_short(exception)
            is_lost = is_lost_connection(f"{exception.partition(':')[0]}: {reason}")
            raised = CLUSTER_BROKE if is_lost else PROGRAM
            return Ending(raised if code == _PYTHON_RAISED else code, reason, lines=source_lines_in(printed))
        if not self.has_listened and (usage := usage_error_in(printed)):
            return Ending(code if code in NO_RESTART else USAGE, usage)
        last_line = last_words(printed.splitlines()).rpartition("\n")[2].strip()
        reason = f"the program ended with exit code {code}"
        return Ending(code, f"{reason}; its last line: {last_line}" if last_line else reason)

    def _printed(self) -> str:
        """Return the last 64 KiB that the program wrote to standard error; "" if that is no readable file."""
        if self._start_of_errors is not None:
            with contextlib.suppress(OSError), _ERRORS.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._start_of_errors, size - _TAIL_BYTES))
                return file.read().decode(errors="replace")
        return ""
