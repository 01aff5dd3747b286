"""A classifier of handwritten digits with one hidden layer, softmax and cross entropy."""

import tensorflow as tf

from trainer.model.models._digits import DIGITS, digits_model, weights_and_biases
from trainer.model.models.model import ModelContext, Values, Variables

CARD = {
    "learning_rates": {"sgd": 0.5, "momentum": 0.1, "adagrad": 0.1, "adam": 0.003},
    "settings": ["hidden_units", "activation"],
    "data": "images",
    "metrics": {"accuracy": "higher", "cross_entropy": "lower"},
    "goals": {"accuracy": {"minimum": 0.9}},
    # A model of this accuracy has a loss of about 0.35, or slightly more if it is never confident.
    "target_loss": 0.5,
}

_ACTIVATIONS = {"sigmoid": tf.sigmoid, "relu": tf.nn.relu}


def create_variables(context: ModelContext) -> Variables:
    """Return new variables: weights and biases of the hidden layer, then of the output layer."""
    pixels, units = context.data.train.read(0, 1).features.shape[1], context.settings.hidden_units
    return [*weights_and_biases("hidden", [pixels, units]), *weights_and_biases("output", [units, DIGITS])]


def logits(context: ModelContext, variables: Values, features: tf.Tensor) -> tf.Tensor:
    """Return the scores of the ten digits, [batch, 10]."""
    hidden_weights, hidden_biases, output_weights, output_biases = variables
    activation = _ACTIVATIONS[context.settings.activation]
    hidden = activation(tf.nn.bias_add(tf.matmul(features, hidden_weights), hidden_biases))
    return tf.nn.bias_add(tf.matmul(hidden, output_weights), output_biases)


MODEL = digits_model(create_variables, logits)
