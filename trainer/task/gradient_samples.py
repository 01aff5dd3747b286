"""The `gradients` and `tables` records of a worker, from samples so rare that they cost little time."""

import time

from trainer.coordination.running_task import RunningTask
from trainer.engine.training import TrainingSession
from trainer.task.tables.samples import TableSamples

# The number of samples before the first step.
FIRST_SAMPLES = 3
# The share of the time that sampling may take; it is divided by the number of workers that wait meanwhile.
_SHARE = 0.003


class GradientSamples:
    """Samples a worker's gradients; for an in-graph client, the gradients of all workers.

    A sample computes gradients without applying them, and is written as a `gradients` record. If the model
    has tables, the first samples also write `tables` records.
    """

    def __init__(self, task: RunningTask, session: TrainingSession, global_step: int) -> None:
        """Take and record the first three samples, at this global step.

        Raises what the session raises, such as tf.errors.OpError.
        """
        self._task, self._session = task, session
        waiting = task.cluster.workers if task.settings.replication == "sync" else 1
        self._share, self._number = _SHARE / waiting, 0
        self._tables = TableSamples(task.records, session.tables, len(task.cluster.ps_devices) or 1)
        for _ in range(FIRST_SAMPLES):
            self._sample(global_step)

    def sample_if_due(self, global_step: int) -> None:
        """Take and record a sample, unless the last sample took more than 0.3% of the time since it.

        In a synchronous run the share is divided by the number of workers, which wait meanwhile.
        """
        if (time.monotonic() - self._sampled_at) * self._share >= self._seconds:
            self._sample(global_step)

    def _sample(self, global_step: int) -> None:
        began = time.monotonic()
        batches = self._session.sampled_batches(self._number)
        fits = self._session.check_gradients(batches)
        if self._tables.wants_more:
            (own,) = batches.values()  # a client of several workers has no tables
            for batch in own:
                self._tables.add(global_step, len(batch), self._session.ids_of(batch))
        self._number, self._sampled_at = self._number + 1, time.monotonic()
        self._seconds = self._sampled_at - began
        fields: dict[str, object] = {
            "losses": {worker: fit.loss for worker, fit in fits.items()},
            "norms": {worker: fit.norm for worker, fit in fits.items()},
            "fits": {worker: fit.fit for worker, fit in fits.items()},
        }
        self._task.records.write("gradients", {"global_step": global_step, **fields})
