"""What a model is: plain functions over a list of variables, and the lines that people read about it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from trainer.contract.exit_codes import CONFIGURATION
from trainer.contract.settings import TrainingSettings
from trainer.model.data import Data
from trainer.model.pieces import AnyVariable, CutVariable, value_of
from trainer.process.failure import TaskFailure

Variables = Sequence[tf.Variable]
# What a model computes with: a variable, or its value.
Values = Sequence[tf.Variable | tf.Tensor]
# By name.
Scalars = Mapping[str, tf.Tensor]


@dataclass(frozen=True)
class Devices:
    """Where a model may put things: the ps, and the worker that the graph (or this part of it) is for.

    Each is a device as `tf.device` takes it, such as "/job:ps/task:1".
    """

    ps: tuple[str, ...]
    worker: str

    def ps_device(self, index: int) -> str:
        """The ps of this index, counted round: index 2 of two ps is ps 0. Without any ps: the worker."""
        return self.ps[index % len(self.ps)] if self.ps else self.worker


@dataclass(frozen=True)
class ModelContext:
    """What a model's functions know while the graph is built."""

    settings: TrainingSettings
    data: Data
    devices: Devices


@dataclass(frozen=True)
class StepReport:
    """What a worker knows at a printed step. `watched` holds the values of the model's watched tensors."""

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
    """Functions called while a graph is built.

    Variables are spread over the ps, a large one in pieces, and operations go to the worker, unless a model
    says otherwise with `tf.device` and the devices of its context. With several workers in one graph, `loss`
    is called for each with a context of its own.

    Attributes:
        name: the value of --model.
        learning_rates: optimizer -> learning rate where none is given; the first is the default optimizer.
        load: the examples, where so many workers learn; raises TaskFailure of class `input`.
        create_variables: what is trained, as resource variables.
        loss: the mean loss of a batch of features and labels, a float scalar. Here as in `metrics` and
            `watched` variables come as their values, tensors of their shape, but for those that travel alone.
        metrics: name -> a float scalar that is a mean over the examples given.
        watched: name -> a scalar to show in the step lines.
        step_line: the line printed every `steps_to_validate` local steps.
        summary_lines: the lines the chief prints at the end, from the metrics on the test examples.
        rates_per_gradient: whether `learning_rates` are for a step of one gradient. With sgd and momentum, a
            step that applies the mean of several then takes the rate as many times. For a model whose
            workers each learn something else, so that a mean has one worker's word only once in all.
        travels_alone: whether a variable is to come itself, and not its value: one of which `loss` reads some
            rows, or that it computes with on the ps. It stays in one piece.

    """

    name: str
    learning_rates: Mapping[str, float]
    load: Callable[[TrainingSettings, int], Data]
    create_variables: Callable[[ModelContext], Variables]
    loss: Callable[[ModelContext, Values, tf.Tensor, tf.Tensor], tf.Tensor]
    metrics: Callable[[ModelContext, Values, tf.Tensor, tf.Tensor], Scalars]
    watched: Callable[[Values], Scalars]
    step_line: Callable[[StepReport], str]
    summary_lines: Callable[[Mapping[str, float]], Sequence[str]]
    rates_per_gradient: bool = False
    travels_alone: Callable[[tf.Variable], bool] = lambda _variable: False

    def values_of(self, variables: Sequence[AnyVariable]) -> Values:
        """What `metrics` and `watched` are computed of."""
        return [
            variable
            if not isinstance(variable, CutVariable) and self.travels_alone(variable)
            else value_of(variable)
            for variable in variables
        ]

    def optimizer_name(self, settings: TrainingSettings) -> str:
        """The optimizer that the settings ask for, or the model's own."""
        return settings.optimizer or next(iter(self.learning_rates))

    def learning_rate(self, settings: TrainingSettings, workers: int) -> float:
        """The learning rate that the settings ask for, or the model's own for that optimizer.

        Raises TaskFailure (`configuration`) where there is neither.
        """
        if settings.learning_rate is not None:
            return settings.learning_rate
        optimizer = self.optimizer_name(settings)
        if optimizer not in self.learning_rates:
            has = f"model {self.name} has a learning rate of its own for {', '.join(self.learning_rates)}"
            expected = f"expected one of these, or a trainer_learning_rate (--learning_rate) for {optimizer}"
            raise TaskFailure(
                CONFIGURATION, f"trainer_optimizer (--optimizer) is {optimizer!r}: {has}; {expected}"
            )
        gradients = settings.gradients_in_a_step(workers) if self.rates_per_gradient else 1
        # The steps of the others do not depend on how large the gradients are.
        return self.learning_rates[optimizer] * (gradients if optimizer in {"sgd", "momentum"} else 1)
