"""Asynchronous training: each worker applies its gradients to the ps without waiting for anyone.

In one process (`local`) it is the same, for nobody else is there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from trainer.ledger import FIRST_WORKER, GLOBAL_STEP
from trainer.training import StepResult, TrainingGraph, TrainingSession


class AsynchronousGraph(TrainingGraph):
    """A step applies this worker's gradients and adds one to the global step and to this worker's count."""

    def build_step(self) -> None:
        """Add the step."""
        features, labels = self.next_batch()
        loss = self.model.loss(self.context, self.model_variables, features, labels)
        applied = self.optimizer.apply_gradients(self.gradients_of(loss))
        one_step = np.zeros(self.counters.shape, np.int64)
        one_step[[GLOBAL_STEP, FIRST_WORKER + self.cluster.index]] = 1
        with tf.device(self.counters.device):
            before = self.counters.read_value()[GLOBAL_STEP]
            with tf.control_dependencies([applied, before]):
                after = self.counters.assign_add(one_step, read_value=True)
        self.step = [loss, before, after]

    def session(self, target: str) -> AsynchronousSession:
        """A session to the ps and this worker."""
        return AsynchronousSession(self, target)


class AsynchronousSession(TrainingSession):
    """Takes steps that wait for nobody."""

    def __init__(self, graph: AsynchronousGraph, target: str) -> None:
        """Connect, and start this worker's batches."""
        super().__init__(graph, target)
        self._step = self.callable_for(graph.step)

    def step(self, raise_if_stopping: Callable[[], None]) -> StepResult:  # noqa: ARG002 - it does not wait
        """Take one batch and apply its gradients."""
        loss, before, counters = self._step()
        return StepResult(float(loss), int(before), tuple(int(count) for count in counters), 0.0)
