"""A linear model, y = w . x, that no worker can learn alone: it shows whether workers share parameters.

Every worker has two weights of its own. In its training examples, x is 0 except for these two, so its
gradients do not change the other weights. These stay at 0, where they began, unless the workers that can
learn them push to the same variables. The test examples depend on all weights.
"""

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.contract.settings import TrainingSettings
from trainer.model.data import Data, Examples
from trainer.model.models.model import Model, ModelContext, Outputs, Scalars, Values, Variables

v1 = tf.compat.v1

WEIGHTS_OF_A_WORKER = 2
# A worker's part counts as found if each of its weights is within this distance of the known weight.
FOUND_WITHIN = 0.05
NOISE = 0.01
# With more workers than this, the metrics only name the worst part, because every summary contains them.
MOST_ERRORS_SHOWN = 8
ERROR_OF_WORKER, WORST_WORKER = "error_of_worker", "worst_worker"
_EXAMPLES_OF_A_WORKER, _TEST_EXAMPLES = 64, 200
# All tasks must draw the same weights and examples, so these do not depend on the run's seed.
_WEIGHTS_SEED, _TRAIN_SEED, _TEST_SEED = 20_212, 20_213, 20_214


def known_weights(workers: int) -> npt.NDArray[np.float32]:
    """Return the weights to learn, [workers * WEIGHTS_OF_A_WORKER], each from 1 to 3 or from -3 to -1.

    A worker's weights do not depend on the number of workers.
    """
    parts = []
    for worker in range(workers):
        generator = np.random.default_rng([_WEIGHTS_SEED, worker])
        parts.append(generator.uniform(1, 3, WEIGHTS_OF_A_WORKER) * _signs(generator, WEIGHTS_OF_A_WORKER))
    return np.concatenate(parts).astype(np.float32)


def load(_settings: TrainingSettings, workers: int) -> Data:
    """Return features [count, workers * WEIGHTS_OF_A_WORKER] of -1, 0 and 1; each worker has one part."""
    weights = known_weights(workers)
    pieces = [
        _examples(np.random.default_rng([_TRAIN_SEED, worker]), _EXAMPLES_OF_A_WORKER, weights, worker)
        for worker in range(workers)
    ]
    train = Examples(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))
    test = Examples(*_examples(np.random.default_rng(_TEST_SEED), _TEST_EXAMPLES, weights, None))
    return Data(train, test, parts=workers)


def create_variables(context: ModelContext) -> Variables:
    """Create the weights, all 0, as one variable on each ps; their sizes differ by one at most.

    If there are more ps than weights, some ps hold none.
    """
    weights = context.data.test.read(0, 1).features.shape[1]
    pieces = np.array_split(np.arange(weights), min(weights, max(1, len(context.devices.ps))))
    zeros, variables = v1.zeros_initializer(), []
    for number, piece in enumerate(pieces):
        with tf.device(context.devices.ps_device(number)):
            weights = v1.get_variable(f"weights{number}", [len(piece)], initializer=zeros, use_resource=True)
            variables.append(weights)
    return variables


def outputs(_context: ModelContext, variables: Values, features: tf.Tensor) -> Outputs:
    """Return y = w . x."""
    return {"y": tf.linalg.matvec(features, _all_weights(variables))}


def loss(context: ModelContext, variables: Values, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the mean squared error."""
    return tf.reduce_mean(tf.square(labels - outputs(context, variables, features)["y"]))


def metrics(context: ModelContext, variables: Values, features: tf.Tensor, labels: tf.Tensor) -> Scalars:
    """Return the largest error, the number of workers whose weights were found, and the loss.

    Up to MOST_ERRORS_SHOWN workers, each worker's largest error is a metric of its own. With more workers,
    `worst_worker` is the index of the worker with the largest error.
    """
    errors = _errors_of_workers(variables)
    workers = errors.shape[0]
    if workers <= MOST_ERRORS_SHOWN:
        shown = {f"{ERROR_OF_WORKER}{worker}": errors[worker] for worker in range(workers)}
    else:
        shown = {WORST_WORKER: tf.cast(tf.argmax(errors), tf.float32)}
    return {**watched(variables), **shown, "loss": loss(context, variables, features, labels)}


def watched(variables: Values) -> Scalars:
    """Return the number of workers, how many workers' weights are found, and the largest error."""
    errors = _errors_of_workers(variables)
    return {
        "parts": tf.constant(float(errors.shape[0])),
        "parts_found": tf.reduce_sum(tf.cast(errors <= FOUND_WITHIN, tf.float32)),
        "largest_error": tf.reduce_max(errors),
    }


def _all_weights(variables: Values) -> tf.Tensor:
    return tf.concat([tf.convert_to_tensor(variable) for variable in variables], axis=0)


def _errors_of_workers(variables: Values) -> tf.Tensor:
    """Return the largest error among each worker's weights, [workers]."""
    weights = _all_weights(variables)
    known = known_weights(weights.shape[0] // WEIGHTS_OF_A_WORKER)
    return tf.reduce_max(tf.reshape(tf.abs(weights - known), [-1, WEIGHTS_OF_A_WORKER]), axis=1)


def _examples(
    generator: np.random.Generator, count: int, weights: npt.NDArray[np.float32], worker: int | None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return features and labels that depend only on this worker's weights; on all if `worker` is None."""
    width = WEIGHTS_OF_A_WORKER
    own = slice(None) if worker is None else slice(worker * width, (worker + 1) * width)
    features = np.zeros((count, len(weights)), np.float32)
    features[:, own] = _signs(generator, features[:, own].shape)
    labels = features @ weights + NOISE * generator.standard_normal(count)
    return features, labels.astype(np.float32)


def _signs(generator: np.random.Generator, shape: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
    return generator.choice([-1.0, 1.0], shape)


MODEL = Model(
    name="partition",
    # With sgd, a step on a large batch leaves 0.6 of a worker's error; on a single example it leaves 0.72
    # (root mean square).
    learning_rates={"sgd": 0.2, "momentum": 0.02, "adagrad": 0.5, "adam": 0.05},
    load=load,
    create_variables=create_variables,
    loss=loss,
    metrics=metrics,
    outputs=outputs,
    watched=watched,
    step_line=lambda step: (
        f"Step: {step.local_step}, global step: {step.global_step},"
        f" weights of {step.watched['parts_found']:.0f} of {step.watched['parts']:.0f} workers found,"
        f" largest error: {step.watched['largest_error']:.4f}, loss: {step.loss:.5f}"
    ),
    summary_lines=lambda metrics: [
        f"Each worker knew {WEIGHTS_OF_A_WORKER} of {WEIGHTS_OF_A_WORKER * metrics['parts']:.0f} weights;"
        f" found are those of {metrics['parts_found']:.0f} of {metrics['parts']:.0f} workers",
        f"Largest error: {metrics['largest_error']:.4f}",
        f"Test-Loss: {metrics['loss']:.5f}",
    ],
    rates_per_gradient=True,
)
