"""A toy model that places its variables and operations itself, as TensorFlow's tutorials show.

It learns a known matrix and offset by least squares: y = A x + b. The matrix and its multiplication are on
ps 0. The offset is on ps 1, or on ps 0 if there is no other. The addition and the loss are on the worker.
TensorFlow sends the tensors from task to task.
"""

import numpy as np
import tensorflow as tf

from trainer.contract.settings import TrainingSettings
from trainer.model.data import Data, Examples
from trainer.model.models.model import Model, ModelContext, Outputs, Scalars, Values, Variables

v1 = tf.compat.v1

CARD = {
    "learning_rates": {"sgd": 0.1, "momentum": 0.01, "adagrad": 1.0, "adam": 0.1},
    "metrics": {"largest_error": "lower", "loss": "lower"},
    # The entries of the matrix and the offset approach known values.
    "goals": {"largest_error": {"maximum": 0.05}},
    "target_loss": 0.01,  # without noise it goes to 0
}

MATRIX = np.array([[1, -1, 3, 2], [-2, 2, 1, -3], [3, 1, -2, 1]], np.float32)
OFFSET = np.array([[10], [-5], [2]], np.float32)
_KNOWN = {"matrix": MATRIX, "offset": OFFSET}
_TRAIN_EXAMPLES, _TEST_EXAMPLES = 2_000, 200
# All tasks must draw the same points, so these do not depend on the run's seed.
_DATA_SEED = 20_211


def load(_settings: TrainingSettings, _workers: int) -> Data:
    """Return points x [count, 4] from a normal distribution, and y = A x + b [count, 3] without noise."""
    generator = np.random.default_rng(_DATA_SEED)
    return Data(train=_points(generator, _TRAIN_EXAMPLES), test=_points(generator, _TEST_EXAMPLES))


def create_variables(context: ModelContext) -> Variables:
    """Return [matrix, offset], new variables, all 0: the matrix on ps 0, the offset on ps 1 if it exists."""
    variables = []
    for ps, (name, known) in enumerate(_KNOWN.items()):
        with tf.device(context.devices.ps_device(ps)):
            first = v1.zeros_initializer()
            variables.append(v1.get_variable(name, shape=known.shape, initializer=first, use_resource=True))
    return variables


def loss(context: ModelContext, variables: Values, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the mean squared error, a scalar; the multiplication runs on ps 0, the rest on the worker."""
    with tf.device(context.devices.worker):
        return tf.reduce_mean(tf.square(tf.transpose(labels) - _columns(context, variables, features)))


def outputs(context: ModelContext, variables: Values, features: tf.Tensor) -> Outputs:
    """Return {"y": A x + b}, [batch, 3]."""
    with tf.device(context.devices.worker):
        return {"y": tf.transpose(_columns(context, variables, features))}


def metrics(context: ModelContext, variables: Values, features: tf.Tensor, labels: tf.Tensor) -> Scalars:
    """Return {"largest_error": .., "loss": mean squared error}.

    An error is the distance of a learned number from the known number.
    """
    return {
        "largest_error": tf.reduce_max(tf.stack(list(watched(variables).values()))),
        "loss": loss(context, variables, features, labels),
    }


def watched(variables: Values) -> Scalars:
    """Return {"<variable> on <device>": largest error of the variable's numbers} for both variables.

    An error is the distance of a learned number from the known number.
    """
    return {
        f"{name} on {variable.device}": tf.reduce_max(tf.abs(variable.read_value() - known))
        for variable, (name, known) in zip(variables, _KNOWN.items(), strict=True)
    }


def _columns(context: ModelContext, variables: Values, features: tf.Tensor) -> tf.Tensor:
    """Return A x + b as [3, batch]: a column for each example.

    With a row for each example, TensorFlow would merge the addition into the multiplication.
    """
    matrix, offset = variables
    with tf.device(context.devices.ps_device(0)):
        product = tf.matmul(matrix, features, transpose_b=True, name="multiplication_on_ps")
    with tf.device(context.devices.worker):
        return tf.add(product, offset, name="addition_on_worker")


def _points(generator: np.random.Generator, count: int) -> Examples:
    x = generator.standard_normal((count, MATRIX.shape[1])).astype(np.float32)
    return Examples(x, (MATRIX @ x.T + OFFSET).T)


MODEL = Model(
    load=load,
    create_variables=create_variables,
    loss=loss,
    metrics=metrics,
    outputs=outputs,
    watched=watched,
    step_line=lambda step: (
        f"Step: {step.local_step}, global step: {step.global_step}, largest error of the "
        + ", ".join(f"{name}: {error:.5f}" for name, error in step.watched.items())
        + f", loss: {step.loss:.5f}"
    ),
    summary_lines=lambda metrics: [
        f"Trained on a known {MATRIX.shape[0]} x {MATRIX.shape[1]} matrix and its offset,"
        f" found them with a largest error of {metrics['largest_error']:.5f}",
        f"Test-Loss: {metrics['loss']:.5f}",
    ],
    travels_alone=lambda _variable: True,
)
