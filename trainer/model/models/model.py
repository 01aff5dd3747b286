"""The interface of a model: functions over a list of variables, and the lines printed about it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import tensorflow as tf

from trainer.contract.exit_codes import CONFIGURATION
from trainer.contract.model_card import Card
from trainer.contract.settings import TrainingSettings
from trainer.model.data import Data
from trainer.model.pieces import AnyVariable, InPieces, value_of
from trainer.process.failure import TaskFailure

Variables = Sequence[tf.Variable]
# A model computes with the values of its variables, or with the variables themselves.
Values = Sequence[tf.Variable | tf.Tensor]
# Name -> scalar.
Scalars = Mapping[str, tf.Tensor]
# Name -> a value for each example, [batch, ...].
Outputs = Mapping[str, tf.Tensor]
# Name -> the values of a metric over all examples.
Metrics = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Devices:
    """The devices on which a model may place things: the ps, and the worker of this graph or tower.

    Each is a device as `tf.device` takes it, such as "/job:ps/task:1".
    """

    ps: tuple[str, ...]
    worker: str

    def ps_device(self, index: int) -> str:
        """Return the device of ps number `index` modulo the number of ps; without ps, the worker's device."""
        return self.ps[index % len(self.ps)] if self.ps else self.worker


@dataclass(frozen=True)
class ModelContext:
    """The settings, data and devices that a model's functions get while the graph is built."""

    settings: TrainingSettings
    data: Data
    devices: Devices


@dataclass(frozen=True)
class Table:
    """An embedding table of a model, of which a batch needs some rows; it need not fit into one machine.

    Attributes:
        name: what messages call it.
        rows: the number of rows.
        width: the numbers in a row.
        ids: returns the rows that a batch of features needs, int64 [batch, k], each from 0 to `rows` - 1. k
            is the same for all batches; a row may be there more than once.
        scale: the first values are drawn from -scale to scale.
        hashed: (first row, number of rows) of each range of rows into which values are hashed; () if the ids
            are not hashed.

    """

    name: str
    rows: int
    width: int
    ids: Callable[[ModelContext, tf.Tensor], tf.Tensor]
    scale: float = 0.05
    hashed: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True)
class StepReport:
    """The numbers for a worker's step line. `watched` is {name: value} of the model's `watched`."""

    local_step: int
    global_step: int
    epoch: int
    batch: int
    batches_per_epoch: int
    loss: float
    average_milliseconds: float
    watched: Mapping[str, float]


@dataclass(frozen=True)
class Model:
    """A model: its functions, most of which are called while a graph is built, and its card.

    The variables are spread over the ps, a large one in pieces, and the operations run on the worker. A model
    can override this with `tf.device` and the devices of its context. If one graph serves several workers,
    `loss` is called once for each worker, with that worker's context.

    Attributes:
        load: returns the examples for a number of workers; raises TaskFailure (`input`).
        create_variables: creates the trained variables, which are resource variables.
        loss: returns the mean loss of a batch of features and labels, a float scalar. `loss`, `metrics`,
            `outputs` and `watched` get the values of the variables, as tensors of the same shape, except for
            variables that travel alone. After these, all but `watched` get the rows that the batch needs of
            each table, [batch, k, width].
        metrics: returns {name: tensor of any shape} for some examples: a float tensor is a mean over the
            examples; an int64 tensor is a count, which is summed over all examples.
        outputs: returns {name: the model's answers, [batch, ...]} for a batch of features; an exported model
            returns the same.
        watched: returns {name: scalar} to show in the step lines.
        step_line: returns the line that is printed every `steps_to_validate` local steps.
        results: returns {name: number} to show and to judge, from the metrics over all examples.
        levels: returns {name: number} that models reach on the test examples after training on so many
            examples, to judge the results by; {} if unknown. They are added to the final model's results.
        summary_lines: returns the chief's last lines, from the results on the test examples.
        travels_alone: returns True for a variable that the functions get itself, and not its value. This is
            for a variable of which `loss` reads only some rows, or with which it computes on the ps. It is
            never cut.
        tables: returns the model's tables (tables.py).
        name: the name of the model's file, without `.py`.
        card: the card in the model's file. Whoever loads the file sets `name` and `card`.

    """

    load: Callable[[TrainingSettings, int], Data]
    create_variables: Callable[[ModelContext], Variables]
    loss: Callable[[ModelContext, Values, tf.Tensor, tf.Tensor], tf.Tensor]
    metrics: Callable[[ModelContext, Values, tf.Tensor, tf.Tensor], Scalars]
    outputs: Callable[[ModelContext, Values, tf.Tensor], Outputs]
    watched: Callable[[Values], Scalars]
    step_line: Callable[[StepReport], str]
    summary_lines: Callable[[Mapping[str, float]], Sequence[str]]
    travels_alone: Callable[[tf.Variable], bool] = lambda _variable: False
    results: Callable[[Metrics], Mapping[str, float]] = lambda metrics: {
        name: float(value) for name, value in metrics.items()
    }
    tables: Callable[[ModelContext], Sequence[Table]] = lambda _context: ()
    levels: Callable[[ModelContext, int], Mapping[str, float]] = lambda _context, _examples: {}
    name: str = ""
    card: Card = field(default_factory=lambda: Card(learning_rates={}))

    def values_of(self, variables: Sequence[AnyVariable]) -> Values:
        """Return, for each variable, its whole value; a variable that travels alone is returned itself."""
        return [
            variable
            if not isinstance(variable, InPieces) and self.travels_alone(variable)
            else value_of(variable)
            for variable in variables
        ]

    def levels_at(self, context: ModelContext, global_step: int, workers: int) -> Mapping[str, float]:
        """Return the model's `levels` after `global_step` steps of a run with `workers` workers."""
        return self.levels(context, global_step * context.settings.examples_in_a_step(workers))

    def optimizer_name(self, settings: TrainingSettings) -> str:
        """Return the optimizer in the settings; if they name none, the first in the model's card."""
        return settings.optimizer or next(iter(self.card.learning_rates))

    def learning_rate(self, settings: TrainingSettings, workers: int) -> float:
        """Return the learning rate in the settings; if they have none, the card's rate for the optimizer.

        With `rates_per_gradient` in the card, the card's rate for sgd or momentum is multiplied by the number
        of gradients in a step of `workers` workers. Raises TaskFailure (`configuration`) if the card has no
        rate.
        """
        if settings.learning_rate is not None:
            return settings.learning_rate
        optimizer = self.optimizer_name(settings)
        if optimizer not in self.card.learning_rates:
            has = f"model {self.name} has its own learning rate for {', '.join(self.card.learning_rates)}"
            expected = f"expected one of these, or a trainer_learning_rate (--learning_rate) for {optimizer}"
            raise TaskFailure(
                CONFIGURATION, f"trainer_optimizer (--optimizer) is {optimizer!r}: {has}; {expected}"
            )
        gradients = settings.gradients_in_a_step(workers) if self.card.rates_per_gradient else 1
        # Steps of adagrad and adam do not depend on the gradients' scale, so their rates stay as they are.
        return self.card.learning_rates[optimizer] * (gradients if optimizer in {"sgd", "momentum"} else 1)
