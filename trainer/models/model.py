"""What a model is: plain functions over a list of variables, and the lines that people read about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from trainer.data import Data
from trainer.settings import TrainingSettings

Variables = Sequence[tf.Variable]


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
    """Functions called while a graph is built; the placing of variables on the ps is not their business.

    Attributes:
        name: the value of --model.
        learning_rates: optimizer -> learning rate where none is given; the first is the default optimizer.
        load: the examples; raises TaskFailure of class `input`.
        create_variables: what is trained, as resource variables.
        loss: the mean loss of a batch of features and labels, a float scalar.
        metrics: name -> a float scalar that is a mean over the examples given.
        watched: name -> a scalar to show in the step lines.
        step_line: the line printed every `steps_to_validate` local steps.
        summary_lines: the lines the chief prints at the end, from the metrics on the test examples.

    """

    name: str
    learning_rates: Mapping[str, float]
    load: Callable[[TrainingSettings], Data]
    create_variables: Callable[[TrainingSettings, Data], Variables]
    loss: Callable[[TrainingSettings, Variables, tf.Tensor, tf.Tensor], tf.Tensor]
    metrics: Callable[[TrainingSettings, Variables, tf.Tensor, tf.Tensor], Mapping[str, tf.Tensor]]
    watched: Callable[[Variables], Mapping[str, tf.Tensor]]
    step_line: Callable[[StepReport], str]
    summary_lines: Callable[[Mapping[str, float]], Sequence[str]]

    def optimizer_name(self, settings: TrainingSettings) -> str:
        """The optimizer that the settings ask for, or the model's own."""
        return settings.optimizer or next(iter(self.learning_rates))

    def learning_rate(self, settings: TrainingSettings) -> float:
        """The learning rate that the settings ask for, or the model's own for that optimizer."""
        if settings.learning_rate is not None:
            return settings.learning_rate
        return self.learning_rates[self.optimizer_name(settings)]
