"""Handwritten digits read by one hidden layer, with softmax and cross entropy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from trainer import data
from trainer.models.model import Model, ModelContext, StepReport, Variables
from trainer.settings import TrainingSettings

v1 = tf.compat.v1

DIGITS = 10
_ACTIVATIONS = {"sigmoid": tf.sigmoid, "relu": tf.nn.relu}


def load(settings: TrainingSettings) -> data.Data:
    """MNIST's files where `data_dir` names them, else the bundled digits."""
    return data.digits(settings.data_dir)


def create_variables(context: ModelContext) -> Variables:
    """Weights and biases of the hidden and of the output layer."""
    pixels = context.data.train.features.shape[1]
    shapes = {
        "hidden/weights": [pixels, context.settings.hidden_units],
        "hidden/biases": [context.settings.hidden_units],
        "output/weights": [context.settings.hidden_units, DIGITS],
        "output/biases": [DIGITS],
    }
    return [
        v1.get_variable(
            name,
            shape=shape,
            initializer=v1.glorot_uniform_initializer() if len(shape) > 1 else v1.zeros_initializer(),
            use_resource=True,
        )
        for name, shape in shapes.items()
    ]


def loss(context: ModelContext, variables: Variables, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Mean cross entropy."""
    logits = _logits(context.settings, variables, features)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def metrics(
    context: ModelContext, variables: Variables, features: tf.Tensor, labels: tf.Tensor
) -> Mapping[str, tf.Tensor]:
    """Share of digits read right, and mean cross entropy."""
    read = tf.argmax(_logits(context.settings, variables, features), axis=1)
    return {
        "accuracy": tf.reduce_mean(tf.cast(tf.equal(read, labels), tf.float32)),
        "cross_entropy": loss(context, variables, features, labels),
    }


def watched(_variables: Variables) -> Mapping[str, tf.Tensor]:
    """Nothing beside the loss."""
    return {}


def step_line(step: StepReport) -> str:
    """The line of the tutorials."""
    return (
        f"Step: {step.local_step}, global step: {step.global_step}, Epoch: {step.epoch},"
        f" Batch: {step.batch} of {step.batches_per_epoch}, Cost: {step.loss:.4f},"
        f" AvgTime: {step.average_milliseconds:.2f}ms"
    )


def summary_lines(metrics_: Mapping[str, float]) -> Sequence[str]:
    """Accuracy and cross entropy on the test images."""
    return [
        f"Test-Accuracy: {metrics_['accuracy']:.4f}",
        f"Validation cross entropy: {metrics_['cross_entropy']:.4f}",
    ]


def _logits(settings: TrainingSettings, variables: Variables, features: tf.Tensor) -> tf.Tensor:
    hidden_weights, hidden_biases, output_weights, output_biases = variables
    activation = _ACTIVATIONS[settings.activation]
    hidden = activation(tf.matmul(features, hidden_weights) + hidden_biases)
    return tf.matmul(hidden, output_weights) + output_biases


MODEL = Model(
    name="mnist_mlp",
    learning_rates={"sgd": 0.5, "adam": 0.003},
    load=load,
    create_variables=create_variables,
    loss=loss,
    metrics=metrics,
    watched=watched,
    step_line=step_line,
    summary_lines=summary_lines,
)
