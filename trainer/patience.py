"""A worker that waits for others in the midst of training: it says for whom, and not for ever."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict

from trainer.barrier import DEADLINE_WITHOUT_BARRIER
from trainer.console import say
from trainer.exit_codes import PEERS_MISSING
from trainer.failure import TaskFailure
from trainer.probes import Missing, probe_all
from trainer.reporting import Progress
from trainer.task import Task

_SECONDS_UNTIL_TOLD = 2.0
_SECONDS_BETWEEN_PROBES = 5.0
# The chief knows best that the run ends; the others do so where the chief itself is gone.
_GRACE_SECONDS = 30.0
# Whoever computes as slowly as this task is not gone.
_SLOW_STEPS = 10
_SILENT = "its port answers but its part of the step has not come"


class Patience:
    """What to do while a step waits for other workers: `wait` now and then, and `over` after the step."""

    def __init__(self, task: Task, progress: Progress) -> None:
        """Take who waits, and where to tell for whom."""
        self._task, self._progress = task, progress
        self._since: float | None = None
        self._stepped = time.monotonic()
        self._probed = 0.0
        self._missing: list[Missing] = []

    def wait(self, awaited: Sequence[int]) -> None:
        """Keep the watchdog quiet, and tell of the workers that are awaited once this has taken a while.

        Raises StopRequested, and TaskFailure (`peers_missing`) after `barrier_deadline_seconds` of waiting.
        """
        self._task.raise_if_stopping()
        now = time.monotonic()
        self._since = self._since or now
        self._progress.tell_in_time()
        waited = now - self._since
        if waited < _SECONDS_UNTIL_TOLD or not awaited:
            return
        if now >= self._probed + _SECONDS_BETWEEN_PROBES or len(self._missing) != len(awaited):
            self._tell(self._find(awaited))
        if waited > self._deadline():
            names = "; ".join(str(missing) for missing in self._missing)
            raise TaskFailure(PEERS_MISSING, f"no step within {waited:.0f} s: waited for {names}")

    def over(self) -> None:
        """Note that there was a step."""
        self._stepped = time.monotonic()
        if self._missing and self._since is not None:
            say(f"Going on after {self._stepped - self._since:.1f} s.")
            self._missing = []
            self._progress.missing = ()
            self._progress.change("training")
        self._since = None

    def _deadline(self) -> float:
        setting = self._task.settings.barrier_deadline_seconds or DEADLINE_WITHOUT_BARRIER
        computing = (self._since or self._stepped) - self._stepped
        grace = 0.0 if self._task.cluster.is_chief else _GRACE_SECONDS
        return max(setting, _SLOW_STEPS * computing) + grace

    def _find(self, awaited: Sequence[int]) -> list[Missing]:
        addresses = {
            f"worker{worker}": self._task.cluster.address_of(f"worker{worker}") for worker in awaited
        }
        reasons = probe_all(addresses)
        self._probed = time.monotonic()
        return [Missing(task, address, reasons.get(task, _SILENT)) for task, address in addresses.items()]

    def _tell(self, missing: list[Missing]) -> None:
        if missing == self._missing:
            return
        self._missing = missing
        say(f"The step waits for {'; '.join(str(one) for one in missing)}")
        self._progress.missing = [asdict(one) for one in missing]
        self._progress.change("waiting")
