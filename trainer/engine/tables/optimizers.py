"""The optimizers of tables, which change the rows that a batch needed and no other rows.

TensorFlow's own optimizers would be slow here. `adam` would work on the whole table in each step. Others add
up the gradients of equal rows, which the worker has done already, or take three times as long as the reads
and writes here. A mutex on each ps lets one push at a time change rows (optimizers.py), so that no change is
lost.

`sgd` and `adagrad` compute the same as on a whole variable, because rows with a gradient of 0 do not change;
`adagrad` begins with a smaller sum of squares. `ftrl` also begins with a smaller sum; it computes what
TensorFlow's FTRL computes for gradients of rows, so a row has its first value until a batch needs it. `adam`
is *lazy*: if a row was not needed for n steps, its moments shrink by beta**n when it is needed again, as if
it had been in each step; but in those steps the row did not move along its old moments. `momentum` would have
to move every row in every step, so it is not offered.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from trainer.contract.contradictions import recovery_problem, table_problems
from trainer.contract.exit_codes import CONFIGURATION
from trainer.contract.settings import TrainingSettings
from trainer.engine.tables.changed_rows import RowMarks
from trainer.model.tables.lookup import RowGradients, create_filled
from trainer.process.failure import TaskFailure

# If few examples of a batch need a row, its gradients are 0.001 or less. With 0.1, which TensorFlow's
# optimizer begins with, the row would hardly move before it was needed a thousand times.
_ACCUMULATED_AT_FIRST = 1e-6
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8

OfParts = Sequence[tuple[RowGradients, tf.Variable]]
# Pairs (variable, new values of some of its rows).
NewRows = Sequence[tuple[tf.Variable, tf.Tensor]]


class Rates(NamedTuple):
    """The learning rate, and the L1 strength of `ftrl`."""

    learning: float
    l1: float = 0.0


class RowOptimizer(ABC):
    """The optimizer of the table parts on one device; its slots and other variables are there, too."""

    def __init__(self, rates: Rates, device: str, number: int) -> None:
        """Prepare the optimizer for `device`, number `number` (from 0) of the devices that hold parts."""
        self._learning_rate, self._l1 = rates
        self._device, self._number = device, number
        self._variables: dict[str, tf.Variable] = {}
        # Part's name -> its marks.
        self.marks: dict[str, RowMarks] = {}

    def apply(self, gradients: OfParts) -> tf.Operation:
        """Return the operation that applies `gradients`, pairs (gradients of rows, part of a table).

        It must run under the mutex of rows.
        """
        with tf.device(self._device):
            step = self._begin()
            return tf.group(*(self._change(rows, part, step) for rows, part in gradients))

    def _begin(self) -> tf.Tensor | None:
        """Count a step, and return its number, from 1; None if the optimizer does not count its steps."""
        return None

    @abstractmethod
    def _new_rows(self, rows: RowGradients, part: tf.Variable, step: tf.Tensor | None) -> NewRows:
        """Return pairs (variable that the step changes, its new values for the rows `rows.positions`).

        `step` is what `_begin` returns.
        """

    def _change(self, rows: RowGradients, part: tf.Variable, step: tf.Tensor | None) -> tf.Operation:
        new = self._new_rows(rows, part, step)
        if part.op.name not in self.marks:
            self.marks[part.op.name] = RowMarks(part)

        def write() -> tf.Operation:
            return tf.group(*(_write(variable, rows.positions, values) for variable, values in new))

        # All values are read before anything is written.
        read = [values for _, values in new]
        marks = self.marks[part.op.name]
        return marks.change(rows.positions, [variable for variable, _ in new], read, write)

    def _slot(self, part: tf.Variable, name: str, *, value: float = 0) -> tf.Variable:
        """Return the slot `name` of `part`, with its shape, such as "tables_16/part_0/Adagrad".

        The first call creates it, filled with `value`.
        """
        return self._variable(f"{part.op.name}/{name}", part.shape, value=value)

    def _variable(
        self, name: str, shape: Sequence[int], dtype: tf.DType = tf.float32, *, value: float = 0
    ) -> tf.Variable:
        """Return the optimizer's variable `name`; the first call creates it, filled with `value`."""
        if name not in self._variables:
            self._variables[name] = create_filled(name, self._device, shape, dtype.as_numpy_dtype(value))
        return self._variables[name]


class _Sgd(RowOptimizer):
    def _new_rows(self, rows: RowGradients, part: tf.Variable, _step: tf.Tensor | None) -> NewRows:
        return [(part, _read(part, rows.positions) - self._learning_rate * rows.values)]


class _Adagrad(RowOptimizer):
    def _new_rows(self, rows: RowGradients, part: tf.Variable, _step: tf.Tensor | None) -> NewRows:
        accumulated = self._slot(part, "Adagrad", value=_ACCUMULATED_AT_FIRST)
        sums = _read(accumulated, rows.positions) + tf.square(rows.values)
        moved = _read(part, rows.positions) - self._learning_rate * rows.values / tf.sqrt(sums)
        return [(accumulated, sums), (part, moved)]


class _Ftrl(RowOptimizer):
    """FTRL-Proximal (McMahan et al. 2013), computed in the same order as in TensorFlow."""

    def _new_rows(self, rows: RowGradients, part: tf.Variable, _step: tf.Tensor | None) -> NewRows:
        accumulated = self._slot(part, "Ftrl", value=_ACCUMULATED_AT_FIRST)
        linear = self._slot(part, "Ftrl_1")
        before = _read(accumulated, rows.positions)
        sums = before + tf.square(rows.values)
        moved = (tf.sqrt(sums) - tf.sqrt(before)) / self._learning_rate * _read(part, rows.positions)
        sum_of_linear = _read(linear, rows.positions) + (rows.values - moved)
        within = tf.clip_by_value(sum_of_linear, -self._l1, self._l1)
        new = (within - sum_of_linear) / (tf.sqrt(sums) / self._learning_rate)
        return [(accumulated, sums), (linear, sum_of_linear), (part, new)]


class _LazyAdam(RowOptimizer):
    """Adam that changes only the rows of a batch; it stores for each row the last step that needed it."""

    def _begin(self) -> tf.Tensor:
        # Named in the way of TensorFlow's powers of beta, of which each ps has its own, too.
        name = f"adam_steps_{self._number}" if self._number else "adam_steps"
        return self._variable(name, [], tf.int64).assign_add(1, read_value=True)

    def _new_rows(self, rows: RowGradients, part: tf.Variable, step: tf.Tensor | None) -> NewRows:
        at, gradient = rows.positions, rows.values
        first, second = self._slot(part, "Adam"), self._slot(part, "Adam_1")
        last = self._variable(f"{part.op.name}/last_step", part.shape[:1], tf.int64)
        # After a restore with another number of ps, a row's last step may be higher than this ps's
        # count.
        since = tf.cast(tf.maximum(step - _read(last, at), 0), tf.float32)[:, tf.newaxis]
        mean = _read(first, at) * _BETA_1**since + (1 - _BETA_1) * gradient
        square = _read(second, at) * _BETA_2**since + (1 - _BETA_2) * tf.square(gradient)
        steps_taken = tf.cast(step, tf.float32)
        rate = self._learning_rate * tf.sqrt(1 - _BETA_2**steps_taken) / (1 - _BETA_1**steps_taken)
        moved = _read(part, at) - rate * mean / (tf.sqrt(square) + _EPSILON)
        steps = tf.fill(tf.shape(at), step)
        return [(first, mean), (second, square), (last, steps), (part, moved)]


# The keys are the names in ROW_OPTIMIZERS (trainer/contract/table_models.py).
_KINDS: Mapping[str, type[RowOptimizer]] = {
    "adagrad": _Adagrad,
    "sgd": _Sgd,
    "adam": _LazyAdam,
    "ftrl": _Ftrl,
}


def row_optimizer(name: str, rates: Rates, device: str, number: int) -> RowOptimizer:
    """Return the optimizer `name` for `device`, number `number` (from 0) of the devices with table parts.

    Raises KeyError if tables have no such optimizer.
    """
    return _KINDS[name](rates, device, number)


def require_fitting_settings(
    settings: TrainingSettings, optimizer: str, model: str, *, has_tables: bool
) -> None:
    """Raise TaskFailure (`configuration`) if a setting does not fit a model with tables, or without tables.

    `has_tables` says which. For a built-in model, the controller refuses these settings before a task starts.
    """
    values = {**settings.as_dict(), "optimizer": optimizer, "model": model}
    problems = [*table_problems(values, "trainer_").values()] if has_tables else []
    if problem := recovery_problem(values, "trainer_", has_tables=has_tables):
        problems.append(problem)
    if problems:
        raise TaskFailure(CONFIGURATION, "; ".join(problems))


def _read(variable: tf.Variable, positions: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.ResourceGather(
        resource=variable.handle, indices=positions, dtype=variable.dtype.base_dtype
    )


def _write(variable: tf.Variable, positions: tf.Tensor, rows: tf.Tensor) -> tf.Operation:
    return tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=positions, updates=rows)
