"""Tracks whether the host of a run's lead answers; the lead reports the run's progress."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from psfleet.watch.notices import Notice
from psfleet.watch.screen_text import clock, in_a_line

# After this time without an answer, the lead's host is reported as silent, even if no reason is known.
SILENT_SECONDS = 20.0


@dataclass
class LeadHost:
    """The host of a run's lead, and whether it answers. Times are seconds of the watcher's monotonic clock.

    The host counts as lost for good after `patience_seconds` without an answer. `lead` is the name of the
    task.
    """

    host: str
    lead: str
    patience_seconds: float
    _answered_at: float | None = field(default=None)
    _silent: bool = False
    _told: bool = False

    def record_answer(self, at: float) -> Iterator[Notice]:
        """Record that the host answered, at the time `at`; yield a notice if it was reported as silent."""
        self._answered_at = at
        if self._silent:
            yield Notice(f"the host of {self.lead}, {self.host}, answers again", good=True)
        self._silent = self._told = False

    def record_silence(self, at: float, problem: str) -> Iterator[Notice]:
        """Record that the host did not answer by the time `at`; yield a notice if there is something new.

        `problem` says why, "" if that is unknown. In one silence, there is one notice at the first reason,
        and one after SILENT_SECONDS (20) even without a reason.
        """
        self._answered_at = at if self._answered_at is None else self._answered_at
        if problem and not self._silent:
            self._silent = True
            yield Notice(f"the host of {self.lead}, {self.host}, does not answer: {in_a_line(problem, 300)}")
        if self.silent_for(at) >= SILENT_SECONDS and not self._told:
            self._silent = self._told = True
            yield Notice(
                f"no answer from the host of {self.lead}, {self.host}, for {SILENT_SECONDS:.0f} s: only its "
                "other hosts still show how the run stands. It may be back within "
                f"{clock(self.patience_seconds)}"
            )

    def silent_for(self, at: float) -> float:
        """Return the seconds from the host's last answer to the time `at`.

        If it never answered, they count from the first recorded silence; 0 before that.
        """
        return 0.0 if self._answered_at is None else at - self._answered_at

    def is_lost(self, at: float) -> bool:
        """Return whether the host has been silent for `patience_seconds`, longer than a reboot takes."""
        return self.silent_for(at) >= self.patience_seconds
