"""Linear regression of y = 2x + 10 with noise: the right weight and bias are known in advance."""

from typing import Any

import numpy as np
import tensorflow as tf

from trainer.contract.settings import TrainingSettings
from trainer.model.data import Data, Examples
from trainer.model.models.model import Model, ModelContext, Outputs, Scalars, Values, Variables

v1 = tf.compat.v1

CARD: dict[str, Any] = {
    "learning_rates": {"sgd": 0.1, "momentum": 0.01, "adagrad": 1.0, "adam": 0.1},
    "metrics": {"loss": "lower", "weight": "neither", "bias": "neither"},
    "goals": {
        "weight": {"target": 2.0, "tolerance": 0.2},
        "bias": {"target": 10.0, "tolerance": 0.2},
    },
    # The noise on y has a standard deviation of 0.33, so no line has a lower loss than 0.11.
    "target_loss": 0.2,
}

WEIGHT, BIAS = (CARD["goals"][name]["target"] for name in ("weight", "bias"))
NOISE = 0.33
_TRAIN_EXAMPLES, _TEST_EXAMPLES = 10_000, 1_000
# All tasks must draw the same points, so these do not depend on the run's seed.
_DATA_SEED = 20_210


def load(_settings: TrainingSettings, _workers: int) -> Data:
    """Return 10,000 points of the noisy line to train on and 1,000 to test with, with x from -1 to 1."""
    generator = np.random.default_rng(_DATA_SEED)
    return Data(train=_points(generator, _TRAIN_EXAMPLES), test=_points(generator, _TEST_EXAMPLES))


def create_variables(_context: ModelContext) -> Variables:
    """Return [weight, bias], new scalar variables, both drawn from a normal distribution."""
    return [
        v1.get_variable(name, shape=[], initializer=v1.random_normal_initializer(), use_resource=True)
        for name in ("weight", "bias")
    ]


def outputs(_context: ModelContext, variables: Values, features: tf.Tensor) -> Outputs:
    """Return {"y": weight * x + bias}, [batch], for the features x, [batch]."""
    weight, bias = variables
    return {"y": features * weight + bias}


def loss(context: ModelContext, variables: Values, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the mean squared error, a scalar."""
    return tf.reduce_mean(tf.square(labels - outputs(context, variables, features)["y"]))


def metrics(context: ModelContext, variables: Values, features: tf.Tensor, labels: tf.Tensor) -> Scalars:
    """Return {"weight": .., "bias": .., "loss": mean squared error}."""
    return {**watched(variables), "loss": loss(context, variables, features, labels)}


def watched(variables: Values) -> Scalars:
    """Return {"weight": .., "bias": ..}."""
    weight, bias = variables
    return {"weight": weight, "bias": bias}


def _points(generator: np.random.Generator, count: int) -> Examples:
    x = generator.uniform(-1, 1, count).astype(np.float32)
    y = WEIGHT * x + BIAS + NOISE * generator.standard_normal(count)
    return Examples(x, y.astype(np.float32))


MODEL = Model(
    load=load,
    create_variables=create_variables,
    loss=loss,
    metrics=metrics,
    outputs=outputs,
    watched=watched,
    step_line=lambda step: (
        f"Step: {step.local_step}, global step: {step.global_step}, weight: {step.watched['weight']:.4f},"
        f" bias: {step.watched['bias']:.4f}, loss: {step.loss:.4f}"
    ),
    summary_lines=lambda results: [
        f"Trained on y = {WEIGHT:g}x + {BIAS:g}, found y = {results['weight']:.4f}x + {results['bias']:.4f}",
        f"Test-Loss: {results['loss']:.4f}",
    ],
)
