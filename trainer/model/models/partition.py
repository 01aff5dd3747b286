"""A linear model, y = w . x, of which each worker sees a part: only workers that share can find all of it.

Every worker has two weights of its own. In the examples that it trains on, x is 0 but for these two, so its
gradients say nothing of the other weights: they stay where they began, at 0, unless the worker that knows
them pushes to the same variables. The test examples ask for all weights.
"""

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.contract.settings import TrainingSettings
from trainer.model.data import Data, Examples
from trainer.model.models.model import Model, ModelContext, Scalars, Values, Variables

v1 = tf.compat.v1

WEIGHTS_OF_A_WORKER = 2
# A part is found when each of its weights is no further than this from the known one.
FOUND_WITHIN = 0.05
NOISE = 0.01
# Beyond so many workers the metrics name the worst part alone: they are written with every summary.
MOST_ERRORS_SHOWN = 8
ERROR_OF_WORKER, WORST_WORKER = "error_of_worker", "worst_worker"
_EXAMPLES_OF_A_WORKER, _TEST_EXAMPLES = 64, 200
# Every task must see the same weights and examples, whatever the run's seed.
_WEIGHTS_SEED, _TRAIN_SEED, _TEST_SEED = 20_212, 20_213, 20_214


def known_weights(workers: int) -> npt.NDArray[np.float32]:
    """What is to be found, [workers * WEIGHTS_OF_A_WORKER]: from 1 to 3, or from -3 to -1.

    A worker's weights are the same however many others there are.
    """
    parts = []
    for worker in range(workers):
        generator = np.random.default_rng([_WEIGHTS_SEED, worker])
        parts.append(generator.uniform(1, 3, WEIGHTS_OF_A_WORKER) * _signs(generator, WEIGHTS_OF_A_WORKER))
    return np.concatenate(parts).astype(np.float32)


def load(_settings: TrainingSettings, workers: int) -> Data:
    """Features [count, workers * WEIGHTS_OF_A_WORKER] of -1, 0 and 1, a piece to train on for each worker."""
    weights = known_weights(workers)
    pieces = [
        _examples(np.random.default_rng([_TRAIN_SEED, worker]), _EXAMPLES_OF_A_WORKER, weights, worker)
        for worker in range(workers)
    ]
    train = Examples(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))
    test = Examples(*_examples(np.random.default_rng(_TEST_SEED), _TEST_EXAMPLES, weights, None))
    return Data(train, test, parts=workers)


def create_variables(context: ModelContext) -> Variables:
    """The weights, all 0: a variable on each ps, of as many weights as on the others or one more.

    Where there are more ps than weights, some hold none.
    """
    weights = context.data.test.features.shape[1]
    pieces = np.array_split(np.arange(weights), min(weights, max(1, len(context.devices.ps))))
    zeros, variables = v1.zeros_initializer(), []
    for number, piece in enumerate(pieces):
        with tf.device(context.devices.ps_device(number)):
            weights = v1.get_variable(f"weights{number}", [len(piece)], initializer=zeros, use_resource=True)
            variables.append(weights)
    return variables


def loss(_context: ModelContext, variables: Values, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Mean squared error."""
    return tf.reduce_mean(tf.square(labels - tf.linalg.matvec(features, _all_weights(variables))))


def metrics(context: ModelContext, variables: Values, features: tf.Tensor, labels: tf.Tensor) -> Scalars:
    """How far the weights are from the known ones, of how many workers they were found, and the loss.

    Up to MOST_ERRORS_SHOWN workers each have a largest error of their own; of more, `worst_worker` is the
    index of the one whose weights are furthest.
    """
    errors = _errors_of_workers(variables)
    workers = errors.shape[0]
    if workers <= MOST_ERRORS_SHOWN:
        shown = {f"{ERROR_OF_WORKER}{worker}": errors[worker] for worker in range(workers)}
    else:
        shown = {WORST_WORKER: tf.cast(tf.argmax(errors), tf.float32)}
    return {**watched(variables), **shown, "loss": loss(context, variables, features, labels)}


def watched(variables: Values) -> Scalars:
    """How many workers' weights are found, as this worker reads them."""
    errors = _errors_of_workers(variables)
    return {
        "parts": tf.constant(float(errors.shape[0])),
        "parts_found": tf.reduce_sum(tf.cast(errors <= FOUND_WITHIN, tf.float32)),
        "largest_error": tf.reduce_max(errors),
    }


def _all_weights(variables: Values) -> tf.Tensor:
    return tf.concat([tf.convert_to_tensor(variable) for variable in variables], axis=0)


def _errors_of_workers(variables: Values) -> tf.Tensor:
    """The largest error among each worker's weights, [workers]."""
    weights = _all_weights(variables)
    known = known_weights(weights.shape[0] // WEIGHTS_OF_A_WORKER)
    return tf.reduce_max(tf.reshape(tf.abs(weights - known), [-1, WEIGHTS_OF_A_WORKER]), axis=1)


def _examples(
    generator: np.random.Generator, count: int, weights: npt.NDArray[np.float32], worker: int | None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Features and labels that tell of one worker's weights alone; of all where `worker` is None."""
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
    # A step leaves 0.6 of a worker's error on a large batch, 0.72 (root mean square) on a single example.
    learning_rates={"sgd": 0.2, "momentum": 0.02, "adagrad": 0.5, "adam": 0.05},
    load=load,
    create_variables=create_variables,
    loss=loss,
    metrics=metrics,
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
