"""What gathers the workers' gradients of a round on a ps, and returns their means.

These are TensorFlow's conditional accumulators, which drop gradients of earlier rounds: one for each packed
tensor (wire.py), and one for the rows of each part of a table. The latter would divide the sum of a row by
the number of workers that sent this row, and so move a rare row too far. So the rows of each worker have
numbers of their own in it, and are added up once they are taken.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple, TypeAlias

import tensorflow as tf

from trainer.engine.optimizers import AnyGradients
from trainer.engine.wire import Sent
from trainer.model.tables import RowGradients

v1 = tf.compat.v1


class SentRows(NamedTuple):
    """The gradients of rows of a table's part, on the ps that holds the part."""

    gradients: RowGradients
    part: tf.Variable

    @property
    def device(self) -> str:
        """The device of that ps."""
        return str(self.part.device)

    @property
    def arrived(self) -> tf.Tensor:
        """A tensor on the ps that is there once the gradients are."""
        return self.gradients.values

    @property
    def pairs(self) -> AnyGradients:
        """The gradients with their variable."""
        return [(self.gradients, self.part)]


AnySent: TypeAlias = Sent | SentRows


class GradientAccumulator(ABC):
    """The accumulator of some gradients; its operations go to the device in force, their ps.

    Attributes:
        accumulator: TensorFlow's.

    """

    accumulator: tf.compat.v1.ConditionalAccumulatorBase

    @abstractmethod
    def add(self, sent: AnySent, local_step: tf.Tensor) -> tf.Operation:
        """Return the operation that adds a worker's gradients, computed in the round `local_step`."""

    @abstractmethod
    def mean(self, replicas: int) -> AnyGradients:
        """Return the means of so many workers' gradients, and empty the accumulator."""


def accumulator_of(sent: AnySent, workers: int, worker: int) -> GradientAccumulator:
    """Return the accumulator for gradients like these, as one of so many workers sees it."""
    return _OfRows(sent, workers, worker) if isinstance(sent, SentRows) else _OfPack(sent)


class _OfPack(GradientAccumulator):
    def __init__(self, sent: Sent) -> None:
        self._sent = sent
        name = f"psfleet/gradients/{sent.pieces[0].op.name}"
        self.accumulator = v1.ConditionalAccumulator(sent.flat.dtype, sent.flat.shape, shared_name=name)

    def add(self, sent: AnySent, local_step: tf.Tensor) -> tf.Operation:
        return self.accumulator.apply_grad(sent.arrived, local_step=local_step)

    def mean(self, replicas: int) -> AnyGradients:
        return self._sent.split(self.accumulator.take_grad(replicas))


class _OfRows(GradientAccumulator):
    def __init__(self, sent: SentRows, workers: int, worker: int) -> None:
        self._part, self._positions_dtype = sent.part, sent.gradients.positions.dtype
        self._rows, width = sent.part.shape.as_list()
        self._shape, self._first = [workers * self._rows, width], worker * self._rows

    @property
    def accumulator(self) -> tf.compat.v1.SparseConditionalAccumulator:
        # It has a reference type, which a branch of a graph cannot take from outside.
        name = f"psfleet/gradients/{self._part.op.name}"
        return v1.SparseConditionalAccumulator(tf.float32, self._shape, shared_name=name)

    def add(self, sent: AnySent, local_step: tf.Tensor) -> tf.Operation:
        (gradients, _), *_ = sent.pairs
        numbers = self._first + tf.cast(gradients.positions, tf.int64)
        return self.accumulator.apply_grad(numbers, gradients.values, self._shape, local_step)

    def mean(self, replicas: int) -> AnyGradients:
        taken = self.accumulator.take_grad(replicas)
        positions, places = tf.unique(taken.indices % self._rows)
        sums = tf.math.unsorted_segment_sum(taken.values, places, tf.size(positions))
        mean = RowGradients(sums / replicas, tf.cast(positions, self._positions_dtype))
        return [(mean, self._part)]
