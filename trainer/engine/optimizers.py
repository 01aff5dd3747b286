"""The optimizers that `--optimizer` names, one instance for each device that holds variables.

A step may stand for several batches (local_steps.py). Then the optimizer's constants are set so that one step
does as much as one step for each batch would do with the mean gradient: with `n` batches, a momentum of 0.9
becomes `0.9**n`, and parameters move `n` times as far.

Damped steps, for stale gradients, are quasi-hyperbolic momentum (Ma and Yarats 2018, arXiv:1810.06801): a
step consists of a part along the mean of many past gradients, and of a part along the newest gradient alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import tensorflow as tf

from trainer.contract.exit_codes import CONFIGURATION
from trainer.engine.mutex import locked, rows_mutex
from trainer.engine.tables.changed_rows import RowMarks
from trainer.engine.tables.optimizers import Rates, RowOptimizer, row_optimizer
from trainer.model.models.model import Values
from trainer.model.tables.lookup import RowGradients
from trainer.process.failure import TaskFailure

v1 = tf.compat.v1

Gradient: TypeAlias = tf.Tensor | tf.IndexedSlices
Gradients = Sequence[tuple[Gradient, tf.Variable]]
# A gradient of a model's variable, or of rows of a table.
AnyGradient: TypeAlias = Gradient | RowGradients
AnyGradients = Sequence[tuple[AnyGradient, tf.Variable]]

_MOMENTUM = 0.9
_ACCUMULATED_AT_FIRST = 0.1
# For damped steps: how slowly past gradients are forgotten, and the share of a step along their mean.
_LONG_MOMENTUM, _PART_OF_MEAN = 0.99, 0.8


def _momentum(rates: Rates, batches: int) -> tf.compat.v1.train.Optimizer:
    momentum = _MOMENTUM**batches
    return v1.train.MomentumOptimizer(rates.learning * batches * (1 - momentum) / (1 - _MOMENTUM), momentum)


# Name -> a function that returns the optimizer for these rates and this number of batches in a step.
_KINDS: Mapping[str, Callable[[Rates, int], tf.compat.v1.train.Optimizer]] = {
    "sgd": lambda rates, batches: v1.train.GradientDescentOptimizer(rates.learning * batches),
    "momentum": _momentum,
    "adagrad": lambda rates, batches: v1.train.AdagradOptimizer(
        rates.learning * math.sqrt(batches), _ACCUMULATED_AT_FIRST / batches
    ),
    "adam": lambda rates, batches: v1.train.AdamOptimizer(
        rates.learning * batches, 0.9**batches, 0.999**batches
    ),
    "ftrl": lambda rates, batches: v1.train.FtrlOptimizer(
        rates.learning * math.sqrt(batches),
        initial_accumulator_value=_ACCUMULATED_AT_FIRST / batches,
        l1_regularization_strength=rates.l1 / batches,
    ),
}


def _damped_momentum(rate: float, batches: int) -> Sequence[tf.compat.v1.train.Optimizer]:
    # Over all steps, each gradient counts 1 / (1 - 0.9) times, as with momentum. TensorFlow's momentum is
    # the sum of past gradients; the factor (1 - momentum) makes it a mean.
    momentum, in_the_end = _LONG_MOMENTUM**batches, rate * batches / (1 - _MOMENTUM)
    return [
        v1.train.MomentumOptimizer(_PART_OF_MEAN * (1 - momentum) * in_the_end, momentum),
        v1.train.GradientDescentOptimizer((1 - _PART_OF_MEAN) * in_the_end),
    ]


# The same for damped steps: a step is done by two optimizers, one after the other.
_DAMPED: Mapping[str, Callable[[float, int], Sequence[tf.compat.v1.train.Optimizer]]] = {
    "momentum": _damped_momentum,
    "adam": lambda rate, batches: [
        v1.train.AdamOptimizer(part * rate * batches, momentum, 0.999**batches)
        for part, momentum in [(_PART_OF_MEAN, _LONG_MOMENTUM**batches), (1 - _PART_OF_MEAN, 0.0)]
    ],
}


def _as_long_as_adams(rate: float, gradient: tf.Tensor) -> tf.Tensor:
    """Return the gradient scaled so that its root mean square is `rate`, as in Adam's first steps.

    A gradient that is all 0 stays 0.
    """
    return rate * tf.math.divide_no_nan(gradient, tf.sqrt(tf.reduce_mean(tf.square(gradient))))


# Optimizer's name -> a worker's own step between two pushes, given learning rate and gradient. It is always
# gradient descent, as in Downpour SGD, with steps about as long as the first steps of the optimizer on the
# ps.
_LOCAL_STEPS: Mapping[str, Callable[[float, tf.Tensor], tf.Tensor]] = {
    "sgd": lambda rate, gradient: rate * gradient,
    "momentum": lambda rate, gradient: rate / (1 - _MOMENTUM) * gradient,
    "adagrad": lambda rate, gradient: rate / math.sqrt(_ACCUMULATED_AT_FIRST) * gradient,
    "ftrl": lambda rate, gradient: rate / math.sqrt(_ACCUMULATED_AT_FIRST) * gradient,
    "adam": _as_long_as_adams,
}


class Optimizers:
    """One optimizer for each device; its slots and other numbers lie there, so that only gradients travel.

    A slot is named after its variable, as in "hidden/weights/Adam". A number that belongs to no variable,
    such as Adam's power of beta, exists once on each device ("beta1_power", "beta1_power_1"), with equal
    values. With damped steps, the second optimizer's slots and numbers are named after the first optimizer's.
    The parts of tables have optimizers of their own (tables/optimizers.py).
    """

    def __init__(self, name: str, rates: Rates, batches: int = 1, *, damped: bool = False) -> None:
        """Prepare the optimizer `name`; a step applies the mean gradient of `batches` batches.

        `damped` means steps for stale gradients. Raises TaskFailure (`configuration`) if it is True and this
        optimizer has no damped steps.
        """
        if damped and name not in _DAMPED:
            expected = f"expected plain, or trainer_optimizer (--optimizer) {' or '.join(_DAMPED)}"
            problem = f"trainer_staleness (--staleness) is damped with the optimizer {name}; {expected}"
            raise TaskFailure(CONFIGURATION, problem)
        self._name, self._rates, self._batches = name, rates, batches
        self._damped = damped
        # Device -> the optimizers there; each gradient goes through all of them, one after the other.
        self._optimizers: dict[str, Sequence[tf.compat.v1.train.Optimizer]] = {}
        self._of_rows: dict[str, RowOptimizer] = {}
        # Variable's name -> (gradient, variable) of the first step that was built.
        self.first_applied: dict[str, tuple[AnyGradient, tf.Variable]] = {}

    @property
    def marks(self) -> list[RowMarks]:
        """The marks of changed rows: one object for each part of a table that `apply` got gradients of."""
        return [marks for each in self._of_rows.values() for marks in each.marks.values()]

    def apply(self, gradients: AnyGradients) -> list[tf.Operation]:
        """Return the operations that apply `gradients`, pairs (gradient, variable): one for each device."""
        by_device: dict[str, list[tuple[AnyGradient, tf.Variable]]] = {}
        for gradient, variable in gradients:
            by_device.setdefault(variable.device, []).append((gradient, variable))
        return [self._apply_on(device, pairs) for device, pairs in by_device.items()]

    def _apply_on(self, device: str, gradients: AnyGradients) -> tf.Operation:
        for gradient, variable in gradients:
            self.first_applied.setdefault(variable.op.name, (gradient, variable))
        rows = [(gradient, part) for gradient, part in gradients if isinstance(gradient, RowGradients)]
        others = [pair for pair in gradients if not isinstance(pair[0], RowGradients)]
        with tf.device(device):
            return self._apply_with_rows(device, rows, others) if rows else self._apply_others(device, others)

    def _apply_with_rows(
        self, device: str, rows: Sequence[tuple[RowGradients, tf.Variable]], others: Gradients
    ) -> tf.Operation:
        """Return the operation that applies one push to a ps: the gradients of rows, and of `others`.

        It runs under the mutex of rows: pushes run one at a time, and none runs while a save reads. A worker
        that reads meanwhile may see a row half changed.
        """
        if device not in self._of_rows:
            number = len(self._of_rows)
            self._of_rows[device] = row_optimizer(self._name, self._rates, device, number)

        def change() -> tf.Tensor:
            applied = [self._of_rows[device].apply(rows)]
            if others:
                applied.append(self._apply_others(device, others))
            with tf.control_dependencies(applied):
                return tf.constant(True)

        # A push asks for the mutex only once its gradients have arrived, so a push that hangs blocks
        # no other.
        arrived = [own.values for own, _ in rows] + [tf.identity(gradient) for gradient, _ in others]
        with tf.control_dependencies(arrived):
            return locked(rows_mutex(), change).op

    def _apply_others(self, device: str, gradients: AnyGradients) -> tf.Operation:
        if device not in self._optimizers:
            rates, batches = self._rates, self._batches
            self._optimizers[device] = (
                _DAMPED[self._name](rates.learning, batches)
                if self._damped
                else [_KINDS[self._name](rates, batches)]
            )
        applied: list[tf.Operation] = []
        for optimizer in self._optimizers[device]:
            with tf.control_dependencies(applied[-1:]):
                applied.append(optimizer.apply_gradients(gradients))
        return applied[-1]

    def local_step(
        self, values: Values, gradients: Sequence[Gradient | None], scale: float | tf.Tensor
    ) -> Values:
        """Return the parameters `values` of a worker after its own step along the gradients of one batch.

        The gradients are first divided by `scale`, by which they were multiplied. Two kinds of values are
        returned unchanged: values without a gradient (None), and variables that the model itself reads.
        """
        step = _LOCAL_STEPS[self._name]
        moved: list[tf.Tensor | tf.Variable] = []
        with tf.name_scope("local_step"):
            for value, gradient in zip(values, gradients, strict=True):
                if gradient is not None and isinstance(value, tf.Tensor):
                    of_batch = tf.convert_to_tensor(gradient) / tf.cast(scale, value.dtype)
                    moved.append(value - step(self._rates.learning, of_batch))
                else:
                    moved.append(value)
        return moved
