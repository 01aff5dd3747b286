"""When a worker looks at its gradients, and what it records of that: so seldom that it costs nothing."""

import time

from trainer.coordination.running_task import RunningTask
from trainer.engine.training import TrainingSession

# Before the first step, when nobody trains yet.
FIRST_LOOKS = 3
# Of the time: what looking may take. While a synchronous worker looks, all others wait.
_SHARE = 0.003


class GradientLooks:
    """The looks of a session, at one worker's gradients, or at those of all workers of an in-graph client."""

    def __init__(self, task: RunningTask, session: TrainingSession, global_step: int) -> None:
        """Look for the first times. Raises what the session does."""
        self._task, self._session = task, session
        waiting = task.cluster.workers if task.settings.replication == "sync" else 1
        self._share, self._number = _SHARE / waiting, 0
        for _ in range(FIRST_LOOKS):
            self._look(global_step)

    def look_in_time(self, global_step: int) -> None:
        """Look again, where the last look was short enough for the time since then."""
        if (time.monotonic() - self._looked_at) * self._share >= self._seconds:
            self._look(global_step)

    def _look(self, global_step: int) -> None:
        began = time.monotonic()
        found = self._session.check_gradients(self._number)
        self._number, self._looked_at = self._number + 1, time.monotonic()
        self._seconds = self._looked_at - began
        fields: dict[str, object] = {
            "losses": {worker: fit.loss for worker, fit in found.items()},
            "norms": {worker: fit.norm for worker, fit in found.items()},
            "fits": {worker: fit.fit for worker, fit in found.items()},
        }
        self._task.records.write("gradients", {"global_step": global_step, **fields})
