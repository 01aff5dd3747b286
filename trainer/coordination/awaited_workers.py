"""A worker's wait for other workers within a training step, with a report and a deadline."""

import time
from collections.abc import Sequence

from trainer.contract.exit_codes import PEERS_MISSING
from trainer.coordination.running_task import RunningTask
from trainer.process.console import say
from trainer.process.failure import TaskFailure
from trainer.process.port_probes import Missing, in_a_line, probe_all

_SECONDS_UNTIL_REPORT = 2.0
_SECONDS_BETWEEN_PROBES = 5.0
# The chief ends the run first, because it knows best. Other workers end it this much later, in case the chief
# itself is gone.
_GRACE_SECONDS = 30.0
# Another worker gets the time of this many steps of this task, because it may be slower.
_SLOW_STEPS = 10
_SILENT = "its port answers but its part of the step has not come"


class AwaitedWorkers:
    """Watches a step's waits for other workers: call `note_wait` during a wait, `end_wait` after the step."""

    def __init__(self, task: RunningTask) -> None:
        self._task = task
        self._since: float | None = None
        self._stepped = time.monotonic()
        self._probed = 0.0
        self._missing: list[Missing] = []

    def note_wait(self, awaited: Sequence[int]) -> None:
        """Notify the watchdog; once the wait has lasted 2 s, report the awaited workers. This does not wait.

        `awaited` are the indices of the workers for which the step waits; with [], nothing is reported.

        Raises StopRequested. Raises TaskFailure (`peers_missing`) once the wait for `awaited` exceeds both
        `recovery_deadline_seconds` and ten times this task's own work on the step; on other workers than the
        chief, 30 s later.
        """
        self._task.raise_if_stopping()
        now = time.monotonic()
        self._since = self._since or now
        self._task.progress.watchdog.excuse()
        self._task.progress.report_if_due()
        waited = now - self._since
        if waited < _SECONDS_UNTIL_REPORT or not awaited:
            return
        if now >= self._probed + _SECONDS_BETWEEN_PROBES or len(self._missing) != len(awaited):
            hosts = self._task.cluster.worker_hosts
            addresses = {f"worker{worker}": hosts[worker] for worker in awaited}
            reasons = probe_all(addresses)
            self._missing = [Missing(name, at, reasons.get(name, _SILENT)) for name, at in addresses.items()]
            self._probed = time.monotonic()
            self._task.progress.report_missing(self._missing, "The step waits for")
        grace = 0.0 if self._task.cluster.is_chief else _GRACE_SECONDS
        deadline = self._task.settings.recovery_deadline_seconds
        if waited > max(deadline, _SLOW_STEPS * (self._since - self._stepped)) + grace:
            names = in_a_line(self._missing)
            raise TaskFailure(PEERS_MISSING, f"no step within {waited:.0f} s: waited for {names}")

    def end_wait(self) -> None:
        """End the wait, because a step was taken; print a line if the wait had been reported."""
        self._stepped = time.monotonic()
        if self._missing and self._since is not None:
            say(f"Going on after {self._stepped - self._since:.1f} s.")
            self._missing = []
            self._task.progress.report_training()
        self._since = None
