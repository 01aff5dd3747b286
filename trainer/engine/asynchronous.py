"""Asynchronous training: each worker applies its gradients to the ps without waiting for other workers.

A `local` run, which is a single process, uses the same engine.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from trainer.contract.step_windows import Read
from trainer.coordination.ledger_parts import GLOBAL_STEP
from trainer.engine.training import StepResult, TrainingGraph, TrainingSession, sizes_of_calls


class AsynchronousGraph(TrainingGraph):
    """A graph in which each step applies this worker's gradients, and raises the global step by 1.

    A step also raises this worker's own count. The graph has several steps in a row, so that one call into
    TensorFlow can take several steps. Each step reads the variables once the previous step is counted; with
    `pull_ahead`, already while the previous step computes. With `pull_every`, some steps read no variables,
    and go on with the worker's copy.

    Attributes:
        calls: {number of steps: [losses [steps], int64 [steps, 1 + counters]]}, for two steps or more; each
            row of the second tensor is the result of `apply_and_count` for one step.

    """

    waiting_seconds = 0.0

    def build_step(self) -> None:
        """Add the steps to the graph, and set `step` and `calls`."""
        index, settings = self.cluster.index, self.settings
        most, steps_of_a_pull = settings.most_steps_in_a_call, settings.steps_of_a_pull
        losses: list[tf.Tensor] = []
        counted: list[tf.Tensor] = []
        for step, batches in enumerate(self.next_batches(index, settings.batch_size, most)):
            pulled_after = counted[-2:-1] if settings.pull_ahead else counted[-1:]
            pulls = step % steps_of_a_pull == 0
            loss, gradients = self.learn(self.context, batches, after=pulled_after, pulls=pulls)
            losses.append(loss)
            counted.append(self.apply_and_count(gradients, [index], counted[-1:], pulled_after))
        self.step = [losses[0], counted[0]]
        sizes = [size for size in sizes_of_calls(most, steps_of_a_pull) if size > 1]
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
        self._steps_of_a_pull = graph.settings.steps_of_a_pull
        self._calls = {size: self.session.make_callable(call) for size, call in graph.calls.items()}

    def steps(self, most: int, note_wait: Callable[[], None]) -> Sequence[StepResult]:
        """Take several steps in one call; return the result of each step, in order.

        The number of steps is the largest of `sizes_of_calls` that is at most `most`, so at least one.
        """
        size = max((size for size in self._calls if size <= most), default=1)
        if size == 1:
            return super().steps(most, note_wait)
        losses, rows = self._calls[size]()
        results: list[StepResult] = []
        for step, (loss, (_, *counters)) in enumerate(zip(losses, rows.tolist(), strict=True)):
            read_at = int(rows[step - step % self._steps_of_a_pull][0])
            before = max([read_at, *(last.counters[GLOBAL_STEP] for last in results[-1:])])
            read = Read(read_at, sum(earlier.counters[GLOBAL_STEP] > read_at for earlier in results))
            results.append(StepResult(float(loss), before, tuple(counters), self._waiting_seconds, read))
        return results
