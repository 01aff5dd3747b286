"""Tracks whether the host of a run's lead answers; the lead reports the run's progress."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from psfleet.watch.notices import Notice
from psfleet.watch.wording import in_a_line

# After this time without an answer, the lead's host counts as lost.
LOST_SECONDS = 60.0


@dataclass
class LeadHost:
    """The host of the lead, by the names of both; times are seconds of the watcher's monotonic clock."""

    host: str
    lead: str
    _answered_at: float | None = field(default=None)
    _silent: bool = False
    _lost: bool = False

    def record_answer(self, at: float) -> Iterator[Notice]:
        """Record an answer, and report it if the host was reported as silent before."""
        self._answered_at = at
        if self._silent:
            yield Notice(f"the host of {self.lead}, {self.host}, answers again", good=True)
        self._silent = self._lost = False

    def record_silence(self, at: float, problem: str) -> Iterator[Notice]:
        """Record that it did not answer, and why ("" if unknown); report the first time, and a loss."""
        self._answered_at = at if self._answered_at is None else self._answered_at
        if problem and not self._silent:
            self._silent = True
            yield Notice(f"the host of {self.lead}, {self.host}, does not answer: {in_a_line(problem, 300)}")
        if self.is_lost(at) and not self._lost:
            self._silent = self._lost = True
            yield Notice(
                f"no answer from the host of {self.lead}, {self.host}, for {LOST_SECONDS:.0f} s: only its "
                "other hosts still show how the run stands"
            )

    def is_lost(self, at: float) -> bool:
        """Return whether it has been silent for LOST_SECONDS."""
        return self._answered_at is not None and at - self._answered_at >= LOST_SECONDS
