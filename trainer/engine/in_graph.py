"""In-graph replication: one client builds a graph with a tower on every worker.

A tower reads its own batches on its worker and computes the gradients of its loss there. The client applies
the mean of all towers' gradients, weighted by their numbers of examples, once to the variables on the ps. On
each worker except the client, a variable (`ledger_parts`) counts the worker's towers; the worker's process
reads the variable there.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from trainer.coordination.ledger_parts import GLOBAL_STEP, TOWERS, Note, TowerPart
from trainer.engine.optimizers import AnyGradients
from trainer.engine.training import TrainingGraph
from trainer.process.cluster import worker_device

v1 = tf.compat.v1


class _Tower(NamedTuple):
    """One worker's part of a step: its loss, its number of examples, and its gradients times that number."""

    loss: tf.Tensor
    examples: tf.Tensor
    gradients: AnyGradients


class InGraphGraph(TrainingGraph):
    """A graph whose steps raise the global step, and the step count of every worker, by 1."""

    def build_step(self) -> None:
        """Add the towers, and the operations that apply the mean of their gradients; set `step`."""
        # The batch size is each worker's own setting, which the client learns before a session begins.
        self._batch_sizes: list[tf.Tensor] = []
        towers = [self._tower(worker) for worker in range(self.cluster.workers)]
        total = tf.add_n([tower.examples for tower in towers])
        means = []
        self._tower_gradients: list[list[tuple[tf.Tensor, tf.Variable]]] = [[] for _ in towers]
        for pairs in zip(*(tower.gradients for tower in towers), strict=True):
            variable = pairs[0][1]
            with tf.device(variable.device), tf.name_scope("aggregation"):
                dense = [tf.convert_to_tensor(gradient) for gradient, _ in pairs]
                gradient = tf.add_n(dense)
                means.append((gradient / tf.cast(total, gradient.dtype), variable))
            for own, gradient in zip(self._tower_gradients, dense, strict=True):
                own.append((gradient, variable))
        counted = self.apply_and_count(means, range(len(towers)))
        counts = [self._count(worker, towers[worker], counted) for worker in range(1, len(towers))]
        loss = tf.add_n([tower.loss * tower.examples for tower in towers]) / total
        self.step = [loss, counted, *counts]

    def applied_gradients(self) -> Sequence[AnyGradients]:
        """Return, for each tower, pairs (gradient times the tower's number of examples, variable).

        These are the gradients before the mean is taken.
        """
        return self._tower_gradients

    def use_notes(self, notes: Mapping[str, Note]) -> None:
        """Set the batch size of each worker for the next session, from its note in `notes`, {task: note}.

        The tasks are "worker1" and so on. A worker without a note, or without a batch size in it, gets the
        client's own batch size.
        """
        for start in self.batches_starts:
            batch_size = notes.get(f"worker{start.worker}", {}).get("batch_size")
            own = self.settings.batch_size
            start.feeds[self._batch_sizes[start.worker]] = batch_size if isinstance(batch_size, int) else own

    def _tower(self, worker: int) -> _Tower:
        device = worker_device(worker)
        with tf.name_scope(f"tower_{worker}"), self.placed_on(device):
            self._batch_sizes.append(v1.placeholder(tf.int64, []))
            batches = self.next_batch(worker, self._batch_sizes[worker])
            examples = tf.add_n([tf.cast(tf.shape(features)[0], tf.float32) for features, _ in batches])
            loss, weighted = self.learn(self.context_on(device), batches, weight=examples)
        return _Tower(loss, examples, weighted)

    def _count(self, worker: int, tower: _Tower, counted: tf.Tensor) -> tf.Operation:
        part = TowerPart(f"worker{worker}", worker_device(worker))
        with tf.device(part.counts.device), tf.control_dependencies([counted]):
            counts = tf.stack([part.counts.read_value()[TOWERS] + 1, counted[1 + GLOBAL_STEP]])
            return tf.group(part.counts.assign(counts).op, part.loss.assign(tower.loss).op)
