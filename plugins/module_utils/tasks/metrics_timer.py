"""The timer with which a host writes its tasks' metrics: on for a directory, or off without any trace."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..host.safe_directory import opened

TIMER, SERVICE = "psfleet-metrics.timer", "psfleet-metrics.service"
FILES = ("psfleet.prom", "psfleet.prom.new")
WANTED = Path("/etc/systemd/system/timers.target.wants") / TIMER
VARIABLE = "trainer_metrics_directory"

MEND_DIRECTORY = (
    "make it (the one of its --collector.textfile.directory), or install prometheus-node-exporter, or set "
    "the variable in group_vars/tf_cluster.yml"
)

# A function that runs systemctl with its arguments and returns the output, or fails with systemctl's error.
Systemctl = Callable[..., str]


def directory_problem(directory: str) -> str:
    """Return, in words, why metrics cannot be written into a directory; "" if they can, or for the path "".

    They can if it is an existing directory that root owns.
    """
    if not directory:
        return ""
    problem = f"{VARIABLE} is {directory!r}"
    expected = "expected a directory of root that node_exporter reads"
    try:
        owner = Path(directory).stat().st_uid if Path(directory).is_dir() else None
    except OSError as error:
        return f"{problem}: {error.strerror}"
    if owner is None:
        return f"{problem}, and this host has no such directory; {expected}"
    return f"{problem}, which belongs to {_name(owner)}; {expected}" if owner else ""


class MetricsTimer:
    """The timer that writes metrics into a `directory`; "" means that there is to be no timer.

    `written_to` is the directory that was used last, from the file `record`; "" for none. `wanted` is the
    path of the link that enables the timer.
    """

    def __init__(self, directory: str, record: Path, systemctl: Systemctl, wanted: Path = WANTED) -> None:
        self.directory, self.record = directory, record
        self._systemctl, self._wanted = systemctl, wanted
        self.written_to = record.read_text(encoding="utf-8").strip() if record.is_file() else ""

    def problem(self) -> str:
        """Return why metrics cannot be written into the directory, with the remedy; "" if they can.

        Also return "" if there is to be no timer.
        """
        problem = directory_problem(self.directory)
        return f"{problem}: {MEND_DIRECTORY}" if problem else ""

    def is_fulfilled(self) -> bool:
        """Return whether `apply` has nothing to do.

        With a directory: the timer is enabled and runs for it. Without: there is no timer, and no record.
        """
        if not self.directory:
            return not self.written_to and not self._wanted.is_symlink()
        running = self._state(TIMER) == "active"
        return self.written_to == self.directory and running and self._wanted.is_symlink()

    def apply(self) -> None:
        """Start the timer for the directory and write metrics once; without a directory, remove the timer.

        The metrics in an earlier directory are removed.
        """
        if self.written_to and self.written_to != self.directory:
            self._stop()
            with suppress(FileNotFoundError), opened(Path(self.written_to)) as folder:
                for name in FILES:
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=folder)
        if self.directory:
            # Record the directory before it is used, so that an interrupted deployment can be undone.
            self.record.write_text(f"{self.directory}\n", encoding="utf-8")
            self._systemctl("enable", "--quiet", TIMER)
            self._systemctl("restart", TIMER)
            self._systemctl("start", SERVICE)
        else:
            self._stop()
            self._wanted.unlink(missing_ok=True)
            self.record.unlink(missing_ok=True)
            self._systemctl("daemon-reload")

    def _stop(self) -> None:
        for unit in (TIMER, SERVICE):
            if self._state(unit) not in {"inactive", "failed"}:
                self._systemctl("stop", unit)
            if self._state(unit) == "failed":  # otherwise systemd would remember the failure for ever
                self._systemctl("reset-failed", unit)

    def _state(self, unit: str) -> str:
        return self._systemctl("show", "--property=ActiveState", "--value", unit).strip()


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
