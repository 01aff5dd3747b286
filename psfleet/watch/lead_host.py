"""Whether the host of a run's lead is heard, which tells how the run stands."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from psfleet.watch.notices import Notice
from psfleet.watch.wording import in_a_line

# Without an answer, after which the lead tells no more of its run.
LOST_SECONDS = 60.0


@dataclass
class LeadHost:
    """The host, by its name and the lead's. Times are of the watcher's monotonic clock, in seconds."""

    host: str
    lead: str
    _heard: float | None = field(default=None)
    _silent: bool = False
    _lost: bool = False

    def answered(self, at: float) -> Iterator[Notice]:
        """Take that it has answered, and tell so where people heard that it did not."""
        self._heard = at
        if self._silent:
            yield Notice(f"the host of {self.lead}, {self.host}, answers again", good=True)
        self._silent = self._lost = False

    def look(self, at: float, problem: str) -> Iterator[Notice]:
        """Take that it has not answered, for a reason or none; tell of the first, and once it is lost."""
        self._heard = at if self._heard is None else self._heard
        if problem and not self._silent:
            self._silent = True
            yield Notice(f"the host of {self.lead}, {self.host}, does not answer: {in_a_line(problem, 300)}")
        if self.is_lost(at) and not self._lost:
            self._silent = self._lost = True
            yield Notice(
                f"no answer from the host of {self.lead}, {self.host}, for {LOST_SECONDS:.0f} s: how the run "
                "stands is told by its other hosts alone"
            )

    def is_lost(self, at: float) -> bool:
        """Tell whether it has been silent for too long."""
        return self._heard is not None and at - self._heard >= LOST_SECONDS
