"""Accumulators on a ps gather the workers' gradients of a round, and return the mean of the gradients.

They are TensorFlow's conditional accumulators, which drop gradients of earlier rounds. Each packed tensor
(wire.py) has one accumulator, and each part of a table has one for the gradients of its rows.

TensorFlow's sparse accumulator divides the sum of a row by the number of workers that sent this row, which
would move a rare row too far. So every worker adds its rows under row numbers of its own: worker `w` adds row
`r` of a part with `n` rows as row `w * n + r`. `mean` adds up the workers' sums of a row afterwards, and
divides by the number of all workers in the mean.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple, TypeAlias

import tensorflow as tf

from trainer.engine.optimizers import AnyGradients
from trainer.engine.wire import PackedGradients
from trainer.model.tables.lookup import RowGradients

v1 = tf.compat.v1


class SentRowGradients(NamedTuple):
    """A worker's gradients of rows of one part of a table, on the ps that holds the part."""

    gradients: RowGradients
    part: tf.Variable

    @property
    def device(self) -> str:
        """The device of the ps, such as "/job:ps/task:0/device:CPU:0"."""
        return str(self.part.device)

    @property
    def arrived(self) -> tf.Tensor:
        """A tensor on the ps whose value exists once the gradients have arrived there."""
        return self.gradients.values

    @property
    def pairs(self) -> AnyGradients:
        """The gradients and their part, as a list with one pair: [(gradients, part)]."""
        return [(self.gradients, self.part)]


# A worker's gradients on one ps.
SentGradients: TypeAlias = PackedGradients | SentRowGradients


class GradientAccumulator(ABC):
    """Gathers the workers' gradients of one packed tensor, or of the rows of one part of a table.

    Call the methods inside `tf.device` with the ps that holds the variables.

    Attributes:
        accumulator: TensorFlow's accumulator.

    """

    accumulator: tf.compat.v1.ConditionalAccumulatorBase

    @abstractmethod
    def add(self, sent: SentGradients, local_step: tf.Tensor) -> tf.Operation:
        """Return the operation that adds a worker's gradients `sent`, computed in round `local_step`.

        Gradients of a round before the open round are dropped.
        """

    @abstractmethod
    def mean(self, replicas: int) -> AnyGradients:
        """Return pairs (mean of `replicas` workers' gradients, variable).

        Reading a mean waits until so many gradients are there, and takes them out of the accumulator.
        """


def accumulator_of(sent: SentGradients, workers: int, worker: int) -> GradientAccumulator:
    """Return the accumulator for the variables of `sent`, as worker number `worker` of `workers` builds it.

    All workers share the accumulator by its name. All gradients that are added must have the shapes of
    `sent`.
    """
    return _OfRows(sent, workers, worker) if isinstance(sent, SentRowGradients) else _OfPack(sent)


class _OfPack(GradientAccumulator):
    def __init__(self, sent: PackedGradients) -> None:
        self._sent = sent
        name = f"psfleet/gradients/{sent.pieces[0].op.name}"
        self.accumulator = v1.ConditionalAccumulator(sent.flat.dtype, sent.flat.shape, shared_name=name)

    def add(self, sent: SentGradients, local_step: tf.Tensor) -> tf.Operation:
        return self.accumulator.apply_grad(sent.arrived, local_step=local_step)

    def mean(self, replicas: int) -> AnyGradients:
        return self._sent.split(self.accumulator.take_grad(replicas))


class _OfRows(GradientAccumulator):
    def __init__(self, sent: SentRowGradients, workers: int, worker: int) -> None:
        self._part, self._positions_dtype = sent.part, sent.gradients.positions.dtype
        self._rows, width = sent.part.shape.as_list()
        self._shape, self._first = [workers * self._rows, width], worker * self._rows

    @property
    def accumulator(self) -> tf.compat.v1.SparseConditionalAccumulator:
        # Built anew at each use: its type is a reference, which a branch of a graph cannot take from
        # outside.
        name = f"psfleet/gradients/{self._part.op.name}"
        return v1.SparseConditionalAccumulator(tf.float32, self._shape, shared_name=name)

    def add(self, sent: SentGradients, local_step: tf.Tensor) -> tf.Operation:
        (gradients, _), *_ = sent.pairs
        numbers = self._first + tf.cast(gradients.positions, tf.int64)
        return self.accumulator.apply_grad(numbers, gradients.values, self._shape, local_step)

    def mean(self, replicas: int) -> AnyGradients:
        gradients = self.accumulator.take_grad(replicas)
        positions, places = tf.unique(gradients.indices % self._rows)
        sums = tf.math.unsorted_segment_sum(gradients.values, places, tf.size(positions))
        mean = RowGradients(sums / replicas, tf.cast(positions, self._positions_dtype))
        return [(mean, self._part)]
