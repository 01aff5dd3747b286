"""That this process was told to end, and how long it may take."""

import time
from threading import Event

from trainer.process.systemd import notify

# What a task's unit grants (TimeoutStopSec=), and grants anew when it is asked; the rest is a reserve.
_UNIT_SECONDS = 30.0
_SECONDS_TO_STOP = 20.0


class StopRequest(Event):
    """Set by SIGTERM. Whoever takes longer than it may is ended, signed off or not."""

    def __init__(self, seconds: float = _SECONDS_TO_STOP) -> None:
        """Take how long this process may take from the request on."""
        super().__init__()
        self._seconds = seconds
        self._since: float | None = None

    def take_time(self) -> None:
        """Begin anew to count the time, also with systemd: what lasts is a save that goes on."""
        if self.is_set():
            self._since = time.monotonic()
            notify(f"EXTEND_TIMEOUT_USEC={_UNIT_SECONDS * 1e6:.0f}")

    def is_late(self) -> bool:
        """Whether the time is over; counted from when this was asked for the first time after the request."""
        if not self.is_set():
            return False
        self._since = self._since or time.monotonic()
        return time.monotonic() > self._since + self._seconds
