"""Asynchronous training: each worker applies its gradients to the ps without waiting for anyone.

In one process (`local`) it is the same, for nobody else is there.
"""

from trainer.engine.training import TrainingGraph


class AsynchronousGraph(TrainingGraph):
    """A step applies this worker's gradients and adds one to the global step and to this worker's count."""

    waiting_seconds = 0.0

    def build_step(self) -> None:
        """Add the step."""
        batch = self.next_batch(self.cluster.index, self.settings.batch_size)
        loss, gradients = self.learn(self.context, batch)
        self.step = [loss, self.apply_and_count(gradients, [self.cluster.index])]
