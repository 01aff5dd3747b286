"""The optimizers that `--optimizer` names, one instance for each device that holds variables.

A step may stand for several batches (local_steps.py). Then the constants of its optimizer are those of as
many steps with the mean gradient: a momentum of 0.9 becomes 0.9**n, and parameters move n times as far.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import tensorflow as tf

from trainer.engine.row_optimizers import ACCUMULATED_AT_FIRST, RowOptimizer, row_optimizer
from trainer.model.models.model import Values
from trainer.model.tables import RowGradients

v1 = tf.compat.v1

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices
Gradients = Sequence[tuple[Gradient, tf.Variable]]
# Those of the model's variables, and those of rows of its tables.
AnyGradient: TypeAlias = Gradient | RowGradients
AnyGradients = Sequence[tuple[AnyGradient, tf.Variable]]

_MOMENTUM = 0.9


def _momentum(rate: float, batches: int) -> tf.compat.v1.train.Optimizer:
    momentum = _MOMENTUM**batches
    return v1.train.MomentumOptimizer(rate * batches * (1 - momentum) / (1 - _MOMENTUM), momentum)


# By learning rate and number of batches.
_KINDS: Mapping[str, Callable[[float, int], tf.compat.v1.train.Optimizer]] = {
    "sgd": lambda rate, batches: v1.train.GradientDescentOptimizer(rate * batches),
    "momentum": _momentum,
    "adagrad": lambda rate, batches: v1.train.AdagradOptimizer(
        rate * math.sqrt(batches), ACCUMULATED_AT_FIRST / batches
    ),
    "adam": lambda rate, batches: v1.train.AdamOptimizer(rate * batches, 0.9**batches, 0.999**batches),
}


def _as_long_as_adams(rate: float, gradient: tf.Tensor) -> tf.Tensor:
    """Return a step along the gradient that changes numbers by the learning rate (root mean square)."""
    return rate * tf.math.divide_no_nan(gradient, tf.sqrt(tf.reduce_mean(tf.square(gradient))))


# A worker's own step between two pushes, by learning rate and gradient: gradient descent, as in Downpour SGD
# whatever the optimizer on the ps, with steps about as long as the optimizer's first ones.
_LOCAL_STEPS: Mapping[str, Callable[[float, tf.Tensor], tf.Tensor]] = {
    "sgd": lambda rate, gradient: rate * gradient,
    "momentum": lambda rate, gradient: rate / (1 - _MOMENTUM) * gradient,
    "adagrad": lambda rate, gradient: rate / math.sqrt(ACCUMULATED_AT_FIRST) * gradient,
    "adam": _as_long_as_adams,
}


class Optimizers:
    """One optimizer for each device: its slots and other numbers lie there, so only gradients travel.

    A slot is named after its variable, as in "hidden/weights/Adam". Each device has its own copy of a number
    that belongs to no variable: "beta1_power", "beta1_power_1" and so on hold equal values. The parts of
    tables have optimizers of their own (row_optimizers.py).
    """

    def __init__(self, name: str, learning_rate: float, batches: int = 1) -> None:
        """Take the number of batches whose mean gradient a step applies."""
        self._name, self._learning_rate, self._batches = name, learning_rate, batches
        self._optimizers: dict[str, tf.compat.v1.train.Optimizer] = {}
        self._of_rows: dict[str, RowOptimizer] = {}
        # Variable's name -> the gradient of the first step that is built, and the variable.
        self.first_applied: dict[str, tuple[AnyGradient, tf.Variable]] = {}

    def apply(self, gradients: AnyGradients) -> list[tf.Operation]:
        """Return the operations that apply the gradients, one on each device that holds variables."""
        of_devices: dict[str, list[tuple[AnyGradient, tf.Variable]]] = {}
        for gradient, variable in gradients:
            of_devices.setdefault(variable.device, []).append((gradient, variable))
        return [self._apply_on(device, its) for device, its in of_devices.items()]

    def _apply_on(self, device: str, gradients: AnyGradients) -> tf.Operation:
        for gradient, variable in gradients:
            self.first_applied.setdefault(variable.op.name, (gradient, variable))
        rows = [(its, part) for its, part in gradients if isinstance(its, RowGradients)]
        others = [pair for pair in gradients if not isinstance(pair[0], RowGradients)]
        applied: list[tf.Operation] = []
        with tf.device(device):
            if rows:
                if device not in self._of_rows:
                    number = len(self._of_rows)
                    self._of_rows[device] = row_optimizer(self._name, self._learning_rate, device, number)
                applied.append(self._of_rows[device].apply(rows))
            if others:
                if device not in self._optimizers:
                    self._optimizers[device] = _KINDS[self._name](self._learning_rate, self._batches)
                applied.append(self._optimizers[device].apply_gradients(others))
            return applied[0] if len(applied) == 1 else tf.group(*applied)

    def local_step(
        self, values: Values, gradients: Sequence[Gradient | None], scale: float | tf.Tensor
    ) -> Values:
        """Return a worker's copy of the parameters after its step along the gradients of one batch.

        The gradients were multiplied by `scale`. A variable that the model itself reads is not copied.
        """
        step = _LOCAL_STEPS[self._name]
        moved: list[tf.Tensor | tf.Variable] = []
        with tf.name_scope("local_step"):
            for value, gradient in zip(values, gradients, strict=True):
                if gradient is not None and isinstance(value, tf.Tensor):
                    of_batch = tf.convert_to_tensor(gradient) / tf.cast(scale, value.dtype)
                    moved.append(value - step(self._learning_rate, of_batch))
                else:
                    moved.append(value)
        return moved
