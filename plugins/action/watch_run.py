"""Watch a run from its lead's host until it is over, and show how it goes.

The lead's `progress.json` tells of the whole cluster, so one connection is enough for any number of hosts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the trainer package is not installed

from trainer.progress import Progress, Watcher
from trainer.run_watch import Listeners, Reading, probe_command, read_command

display = Display()

LINGER_SECONDS = 15  # between the lead's last word and the end of its process
UNKNOWN_COLUMNS = 80  # of a terminal that does not tell its size
LOST_SECONDS = 60  # without an answer from the lead's host
PROBE_SECONDS = 10  # between two looks at the other tasks' ports


class ActionModule(ActionBase):
    """Arguments: `run` (of decide_run), `paths` (`cluster_paths`), `poll_seconds`, `plain_seconds`."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `phase`, `reason`, `global_step` and `restarts`; fails only where the host is lost."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        if self._task.check_mode:
            return result | {"changed": False, "phase": "not started", "reason": "check mode", "restarts": 0}
        arguments = self._task.args
        run, paths = arguments["run"], arguments["paths"]
        self._lead = str(run["lead"]["name"])
        self._command = read_command(run, paths)
        # A program is judged by its traffic, which must be its own alone.
        looked_at = [] if run["settings"]["program"] else run["tasks"]
        self._listeners = Listeners({task["name"]: task["address"] for task in looked_at})
        self._probe_command = probe_command(self._listeners.addresses, paths["install_directory"])
        self._probed = time.monotonic()
        screen = Screen(float(arguments["plain_seconds"]))
        outcome = self._watch(screen, float(arguments["poll_seconds"]))
        screen.close()
        return result | {"changed": False} | outcome

    def _watch(self, screen: Screen, poll_seconds: float) -> dict[str, Any]:
        watcher = Watcher()
        restarts, over_since, answered, phase = 0, 0.0, time.monotonic(), ""
        stale: Progress | None = None
        while True:
            try:
                reading = self._read()
                progress = reading.progress
                answered = time.monotonic()
            except AnsibleError as error:
                if time.monotonic() - answered > LOST_SECONDS:
                    return {
                        "failed": True,
                        "msg": f"no answer from the host of {self._lead} for {LOST_SECONDS} s ({error}). The "
                        "run goes on unwatched: watch it again with its run_id, or end it with stop.yml",
                    }
                screen.note(f"the host of {self._lead} does not answer: {error}")
                time.sleep(poll_seconds)
                continue
            # A run that goes on begins with the last word of its earlier part.
            stale = stale or (progress if progress.over else Progress("none"))
            if progress.same_word(stale) and reading.alive:
                progress = Progress("starting")
            screen.show(watcher.line(progress), urgent=progress.phase != phase)
            phase = progress.phase
            if reading.restarts > restarts:
                screen.note(f"{self._lead} was restarted ({reading.restarts} times so far)")
            restarts = reading.restarts
            if phase == "training":
                self._look_at_the_others(screen)
            over_since = (over_since or time.monotonic()) if progress.over else 0.0
            if not reading.alive or (over_since and time.monotonic() - over_since > LINGER_SECONDS):
                return {
                    "phase": progress.phase,
                    "reason": progress.reason,
                    "global_step": progress.global_step,
                    "restarts": restarts,
                }
            time.sleep(poll_seconds)

    def _read(self) -> Reading:
        """Return the lead's progress and its unit's state, in one command. Raises AnsibleError."""
        answer = self._low_level_execute_command(self._command, sudoable=True)
        try:
            return Reading.of(answer["stdout"])
        except ValueError as error:
            raise AnsibleError(f"{error}: {answer['stderr'].strip()}") from error

    def _look_at_the_others(self, screen: Screen) -> None:
        """Note which tasks have stopped to answer: one that systemd gave up tells nobody of it."""
        if not self._listeners.addresses or time.monotonic() < self._probed + PROBE_SECONDS:
            return
        self._probed = time.monotonic()
        try:
            answer = self._low_level_execute_command(self._probe_command, sudoable=True)
            silent = json.loads(answer["stdout"])
        except (AnsibleError, ValueError):
            return
        for note in self._listeners.look(silent):
            screen.note(note)


class Screen:
    """One line that is rewritten on a terminal; a line now and then where there is none."""

    def __init__(self, plain_seconds: float) -> None:
        """Without a terminal, show a line every `plain_seconds`."""
        self._columns = terminal_columns()
        self._plain_seconds = plain_seconds
        self._shown_at = -plain_seconds
        self._last = self._shown = ""

    def show(self, line: str, *, urgent: bool) -> None:
        """Show where the run stands."""
        if self._columns:
            display.display(f"\r\x1b[K{line[: self._columns - 1]}", newline=False)
        elif urgent or time.monotonic() - self._shown_at >= self._plain_seconds:
            self._show_plain(line)
        self._last = line

    def note(self, text: str) -> None:
        """Say something that stays on the screen."""
        self._clear()
        display.display(f"  ! {text}", color="yellow")

    def close(self) -> None:
        """Leave the last line standing."""
        if self._columns:
            display.display("")
        else:
            self._show_plain(self._last)

    def _show_plain(self, line: str) -> None:
        if line and line != self._shown:
            display.display(line)
        self._shown, self._shown_at = line, time.monotonic()

    def _clear(self) -> None:
        if self._columns:
            display.display("\r\x1b[K", newline=False)


def terminal_columns() -> int:
    """Return the width of the terminal that people see, or 0 where there is none.

    An action runs in a worker process, which has no terminal: what it shows goes through the parent's.
    """
    try:
        with Path(f"/proc/{os.getppid()}/fd/1").open("rb", buffering=0) as stream:
            return os.get_terminal_size(stream.fileno()).columns or UNKNOWN_COLUMNS
    except OSError:
        return 0
