"""The signs of life that systemd's watchdog expects from a task, as long as the task makes progress.

The unit's `WatchdogSec=` is for a task that starts, saves, restores or waits. A task that trains or serves
has a shorter time. systemd ends a task by SIGABRT, on which `faulthandler` prints the stack of each thread.
"""

import os
import time

from trainer.process.systemd import notify

# The shares of the unit's time that a training worker and a serving ps have.
TRAINING, SERVING = 0.5, 0.25
# A step may take this many times as long as the longest step so far.
_SLOWER = 10.0
# TensorFlow prepares a session's first step, which may take this many times the unit's time.
_FIRST_STEP = 10.0


class Watchdog:
    """Tells systemd's watchdog that this process is alive, or, if it hangs, lets systemd end it.

    From `begin_steps` to `end_steps`, the process hangs if it takes no steps; at other times, only if it
    calls `sign` too rarely.
    """

    def __init__(self) -> None:
        """Read the unit's `WatchdogSec=` from the environment; without it, `hangs` is always False."""
        self._unit_seconds = self._seconds = float(os.environ.get("WATCHDOG_USEC") or 0) / 1e6
        self._stepped: float | None = None
        self._longest: float | None = None

    def shorten(self, part: float) -> None:
        """Tell systemd to wait for a sign of life for only a share (`part`, 0 to 1) of `WatchdogSec=`.

        With 1, the whole time holds again.
        """
        seconds = part * self._unit_seconds
        if seconds != self._seconds:
            self._seconds = seconds
            notify(f"WATCHDOG_USEC={seconds * 1e6:.0f}")

    def begin_steps(self) -> None:
        """Count steps from now on, and shorten systemd's time to half of `WatchdogSec=`."""
        self._stepped, self._longest = time.monotonic(), None
        self.shorten(TRAINING)

    def end_steps(self) -> None:
        """Stop counting steps; the whole `WatchdogSec=` holds again."""
        self._stepped = None
        self.shorten(1.0)

    def step(self) -> None:
        """Note that a step was taken now; do nothing while steps are not counted."""
        now = time.monotonic()
        if self._stepped is not None:
            self._longest = max(self._longest or 0.0, now - self._stepped)
            self._stepped = now

    def excuse(self) -> None:
        """Let the time without steps begin now, because something else took time, such as a save."""
        if self._stepped is not None:
            self._stepped = time.monotonic()

    @property
    def hangs(self) -> bool:
        """Whether the last step was too long ago; False while steps are not counted.

        Too long is 10 times the longest step so far, but at least half of `WatchdogSec=`; before the first
        step, 10 times `WatchdogSec=`.
        """
        stepped, longest = self._stepped, self._longest
        if stepped is None or not self._unit_seconds:
            return False
        patience = _FIRST_STEP * self._unit_seconds if longest is None else _SLOWER * longest
        return time.monotonic() - stepped > max(TRAINING * self._unit_seconds, patience)

    def sign(self, status: str) -> None:
        """Send systemd a sign of life and the line `status`, which `systemctl status` shows.

        If this process hangs (`hangs`), ask systemd to end it instead.
        """
        notify("WATCHDOG=trigger" if self.hangs else "WATCHDOG=1", f"STATUS={status}")
