"""A request to stop this process, and the time that the process may take then."""

import os
import time
from pathlib import Path
from threading import Event

from trainer.process.systemd import notify

# The unit's TimeoutStopSec=, which extend_timeout() begins anew. The process itself takes less, as a reserve.
_UNIT_SECONDS = 30.0
_SECONDS_TO_STOP = 20.0


# The unit makes this file before SIGTERM if its host goes down.
_SHUTDOWN_FILE = "PSFLEET_SHUTDOWN_FILE"


def host_goes_down() -> bool:
    """Return whether the host goes down: the file exists that the unit makes before SIGTERM in this case.

    If so, the run goes on after this process has stopped. False without a unit.
    """
    file = os.environ.get(_SHUTDOWN_FILE, "")
    return bool(file) and Path(file).exists()


class StopRequest(Event):
    """An event that is set when this process is asked to stop; `is_late` says when the time is over."""

    def __init__(self, seconds: float = _SECONDS_TO_STOP) -> None:
        """Give this process `seconds` from the request to its end."""
        super().__init__()
        self._seconds = seconds
        self._since: float | None = None

    def extend_timeout(self) -> None:
        """If the stop was requested, restart the time that this class and systemd allow; else do nothing.

        Call this for a save that may take longer.
        """
        if self.is_set():
            self._since = time.monotonic()
            notify(f"EXTEND_TIMEOUT_USEC={_UNIT_SECONDS * 1e6:.0f}")

    def is_late(self) -> bool:
        """Return whether the process has taken all its time since the request; False before the request.

        The time counts from the first call of this method after the request, or from `extend_timeout`.
        """
        if not self.is_set():
            return False
        self._since = self._since or time.monotonic()
        return time.monotonic() > self._since + self._seconds
