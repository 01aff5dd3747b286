"""Asynchronous training: each worker applies its gradients to the ps without waiting for other workers.

A `local` run, which is a single process, uses the same engine.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from trainer.coordination.ledger_parts import GLOBAL_STEP
from trainer.engine.training import StepResult, TrainingGraph, TrainingSession, sizes_of_calls


class AsynchronousGraph(TrainingGraph):
    """A graph whose steps apply this worker's gradients and raise the global step and this worker's count.

    It has several steps in a row, so that one call into TensorFlow can take several. Each step reads the
    variables once the previous step is counted; with `pull_ahead`, already while the previous one computes.
    `calls` maps a number of steps to their losses and to what `apply_and_count` returned for each.
    """

    waiting_seconds = 0.0

    def build_step(self) -> None:
        """Add the steps to the graph."""
        index, most = self.cluster.index, self.settings.steps_per_call
        losses: list[tf.Tensor] = []
        counted: list[tf.Tensor] = []
        for batch in self.next_batches(index, self.settings.batch_size, most):
            pulled_after = counted[-2:-1] if self.settings.pull_ahead else counted[-1:]
            loss, gradients = self.learn(self.context, batch, after=pulled_after)
            losses.append(loss)
            counted.append(self.apply_and_count(gradients, [index], counted[-1:], pulled_after))
        self.step = [losses[0], counted[0]]
        sizes = [size for size in sizes_of_calls(most) if size > 1]
        self.calls = {size: self._call(losses[:size], counted[:size]) for size in sizes}

    def session(self, target: str) -> "AsynchronousSession":
        """Return a session to the ps and this worker."""
        return AsynchronousSession(self, target)

    def _call(self, losses: Sequence[tf.Tensor], counted: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        with tf.device(self.counters.device):
            rows = tf.stack(counted)
        return [tf.stack(losses), rows]


class AsynchronousSession(TrainingSession):
    """A session that can take several steps in one call into TensorFlow."""

    def __init__(self, graph: AsynchronousGraph, target: str) -> None:
        super().__init__(graph, target)
        self._waiting_seconds = graph.waiting_seconds
        self._calls = {size: self.session.make_callable(call) for size, call in graph.calls.items()}

    def steps(self, most: int, raise_if_stopping: Callable[[], None]) -> Sequence[StepResult]:
        """Take up to `most` steps in one call, and return the result of each."""
        size = max((size for size in self._calls if size <= most), default=1)
        if size == 1:
            return super().steps(most, raise_if_stopping)
        losses, rows = self._calls[size]()
        taken: list[StepResult] = []
        for loss, (read, *counters) in zip(losses, rows.tolist(), strict=True):
            own = taken[-1].counters[GLOBAL_STEP] if taken else read
            taken.append(
                StepResult(float(loss), max(read, own), tuple(counters), self._waiting_seconds, read)
            )
        return taken
