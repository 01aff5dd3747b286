"""A classifier of handwritten digits with two convolutions and two dense layers.

It is meant for benchmarks, because it computes much for its number of parameters: on MNIST a training step
takes forty times the computation of one of `mnist_mlp`, and four times the traffic with the ps.
"""

import math

import tensorflow as tf

from trainer.contract.exit_codes import INPUT
from trainer.model.models._digits import DIGITS, digits_model, weights_and_biases
from trainer.model.models.model import ModelContext, Values, Variables
from trainer.process.failure import TaskFailure

CARD = {
    "learning_rates": {"adam": 0.002, "sgd": 0.1, "momentum": 0.02, "adagrad": 0.05},
    "settings": ["hidden_units"],
    "data": "images",
    "metrics": {"accuracy": "higher", "cross_entropy": "lower"},
    "goals": {"accuracy": {"minimum": 0.9}},
    # A model of this accuracy has a loss of about 0.35, or slightly more if it is never confident.
    "target_loss": 0.5,
}

_KERNEL = 3
_FILTERS = (32, 64)


def create_variables(context: ModelContext) -> Variables:
    """Return new variables: weights and biases of both convolutions, the hidden layer and the output layer.

    Raises TaskFailure (`input`) if the images are not square.
    """
    side = _side(context)
    for _pooled in _FILTERS:
        side = math.ceil(side / 2)
    first, second = _FILTERS
    units = context.settings.hidden_units
    return [
        *weights_and_biases("convolution1", [_KERNEL, _KERNEL, 1, first]),
        *weights_and_biases("convolution2", [_KERNEL, _KERNEL, first, second]),
        *weights_and_biases("hidden", [side * side * second, units]),
        *weights_and_biases("output", [units, DIGITS]),
    ]


def logits(context: ModelContext, variables: Values, features: tf.Tensor) -> tf.Tensor:
    """Return the scores of the ten digits, [batch, 10]."""
    *convolutions, hidden_weights, hidden_biases, output_weights, output_biases = variables
    side = _side(context)
    images = tf.reshape(features, [-1, side, side, 1])
    for weights, biases in zip(convolutions[::2], convolutions[1::2], strict=True):
        filtered = tf.nn.bias_add(tf.nn.conv2d(images, weights, strides=1, padding="SAME"), biases)
        images = tf.nn.max_pool2d(tf.nn.relu(filtered), ksize=2, strides=2, padding="SAME")
    flat = tf.reshape(images, [-1, hidden_weights.shape[0]])
    hidden = tf.nn.relu(tf.nn.bias_add(tf.matmul(flat, hidden_weights), hidden_biases))
    return tf.nn.bias_add(tf.matmul(hidden, output_weights), output_biases)


def _side(context: ModelContext) -> int:
    """Return the width of the images in pixels. Raises TaskFailure (`input`) if they are not square."""
    pixels = context.data.train.read(0, 1).features.shape[1]
    side = math.isqrt(pixels)
    if side * side != pixels:
        place = context.settings.data_dir or "the examples"
        raise TaskFailure(INPUT, f"{place}: images have {pixels} pixels, expected square ones for model cnn")
    return side


MODEL = digits_model(create_variables, logits)
