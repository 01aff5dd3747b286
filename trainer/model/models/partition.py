"""A linear model, y = w . x + v . rows, that no worker can learn alone: it shows whether workers share it.

Every worker has two weights of its own, and two rows of a table, which are single numbers. In its training
examples, x is 0 except for its own weights, and the ids are those of its own rows. So its gradients do not
change the others. These stay at 0, where they began, unless the workers that can learn them push to the same
variables and to the same table. The test examples depend on all weights and rows.

Settings that are not for tables leave the rows out, so that the weights can be trained with any.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.contract.contradictions import table_problems
from trainer.contract.settings import TrainingSettings
from trainer.model.data import Data, Examples
from trainer.model.models.model import Model, ModelContext, Outputs, Scalars, Table, Values, Variables

v1 = tf.compat.v1

CARD: dict[str, Any] = {
    # With sgd, a step leaves 0.75 of a worker's error on a large batch, and 0.87 on a single example (root
    # mean square).
    "learning_rates": {"sgd": 0.125, "momentum": 0.02, "adagrad": 0.5, "adam": 0.05},
    "rates_per_gradient": True,
    "own_parts": True,
    "metrics": {"largest_error": "lower", "loss": "lower", "parts_found": "higher"},
    # A weight that no worker trained is off by at least 1.
    "goals": {"largest_error": {"maximum": 0.05, "of_each": "error_of_"}},
    "target_loss": 0.01,  # the noise on y has a standard deviation of 0.01
    "tables": {"rows": {"width": 1, "rows": "data"}},
    "tables_optional": True,
}

# A worker has so many weights, and as many rows.
WEIGHTS_OF_A_WORKER = 2
# A worker's part counts as found if each of its weights and rows is within this distance of the known one.
FOUND_WITHIN = CARD["goals"]["largest_error"]["maximum"]
NOISE = 0.01
# With more workers than this, the metrics only name the worst part, because every summary contains them.
MOST_ERRORS_SHOWN = 8
ERROR_OF_WORKER, WORST_WORKER = f"{CARD['goals']['largest_error']['of_each']}worker", "worst_worker"
_EXAMPLES_OF_A_WORKER, _TEST_EXAMPLES = 64, 200
# All tasks must draw the same numbers and examples, so these do not depend on the run's seed.
_WEIGHTS_SEED, _ROWS_SEED, _TRAIN_SEED, _TEST_SEED = 20_212, 20_215, 20_213, 20_214

Numbers = npt.NDArray[np.float32]


def has_rows(settings: TrainingSettings) -> bool:
    """Return True if a model with tables supports all these settings: then this model has its table."""
    return not table_problems(settings.as_dict())


def known_weights(workers: int, seed: int = _WEIGHTS_SEED) -> Numbers:
    """Return the weights to learn, [workers * WEIGHTS_OF_A_WORKER], each from 1 to 3 or from -3 to -1.

    A worker's weights do not depend on the number of workers.
    """
    parts = []
    for worker in range(workers):
        generator = np.random.default_rng([seed, worker])
        parts.append(generator.uniform(1, 3, WEIGHTS_OF_A_WORKER) * _signs(generator, WEIGHTS_OF_A_WORKER))
    return np.concatenate(parts).astype(np.float32)


def known_rows(workers: int) -> Numbers:
    """Return the rows to learn, [workers * WEIGHTS_OF_A_WORKER], like the weights but of another seed."""
    return known_weights(workers, _ROWS_SEED)


def load(settings: TrainingSettings, workers: int) -> Data:
    """Return data with features [count, columns]; each worker has its own part of the training examples.

    The first columns are x, which is -1, 0 or 1 for each weight. If the model has rows (`has_rows`), the ids
    of WEIGHTS_OF_A_WORKER rows follow, and then v, which is -1 or 1 for each of these rows.
    """
    rows = has_rows(settings)
    pieces = [
        _examples(np.random.default_rng([_TRAIN_SEED, worker]), _EXAMPLES_OF_A_WORKER, workers, worker, rows)
        for worker in range(workers)
    ]
    train = Examples(*(np.concatenate(parts) for parts in zip(*pieces, strict=True)))
    generator, count = np.random.default_rng(_TEST_SEED), max(_TEST_EXAMPLES, workers)
    return Data(train, Examples(*_examples(generator, count, workers, None, rows)), parts=workers)


def create_variables(context: ModelContext) -> Variables:
    """Return new variables with the weights, all 0: one variable on each ps; sizes differ by one at most.

    If there are more ps than weights, some ps hold none.
    """
    weights = _weights_of(context)
    pieces = np.array_split(np.arange(weights), min(weights, max(1, len(context.devices.ps))))
    zeros, variables = v1.zeros_initializer(), []
    for number, piece in enumerate(pieces):
        with tf.device(context.devices.ps_device(number)):
            variable = v1.get_variable(f"weights{number}", [len(piece)], initializer=zeros, use_resource=True)
            variables.append(variable)
    return variables


def tables(context: ModelContext) -> list[Table]:
    """Return [the table], whose rows are single numbers and begin at 0; [] if `has_rows` is False."""
    if not has_rows(context.settings):
        return []
    return [Table("rows", _weights_of(context), 1, _ids, scale=0.0)]


def outputs(context: ModelContext, values: Values, features: tf.Tensor) -> Outputs:
    """Return {"y": w . x + v . rows}, [batch], or {"y": w . x} without rows."""
    weights, rows = _split(context, values)
    y = tf.linalg.matvec(features[:, : _weights_of(context)], weights)
    if rows is not None:
        y += tf.linalg.matvec(rows[:, tf.newaxis], features[:, -WEIGHTS_OF_A_WORKER:])[:, 0]
    return {"y": y}


def loss(context: ModelContext, values: Values, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the mean squared error, a scalar."""
    return tf.reduce_mean(tf.square(labels - outputs(context, values, features)["y"]))


def metrics(context: ModelContext, values: Values, features: tf.Tensor, labels: tf.Tensor) -> Scalars:
    """Return {name: float32 scalar}: `parts`, `parts_found`, `largest_error`, `loss`, and errors of workers.

    `parts` is the number of workers; `parts_found` is how many of them have no error above FOUND_WITHIN. Up
    to MOST_ERRORS_SHOWN workers, each worker's largest error is a metric, such as `error_of_worker0`. With
    more workers, `worst_worker` is the index of the worker with the largest error.
    """
    weights, rows = _split(context, values)
    errors = _errors_of_workers(weights)
    workers = context.data.parts
    if rows is not None:
        ids = _ids(context, features)
        of_rows = tf.reshape(tf.abs(rows - tf.gather(known_rows(workers), ids)), [-1])
        owners = tf.reshape(ids // WEIGHTS_OF_A_WORKER, [-1])
        # The test examples need each row. A worker without one among them would have the least number.
        errors = tf.maximum(errors, tf.math.unsorted_segment_max(of_rows, owners, workers))
    if workers <= MOST_ERRORS_SHOWN:
        shown = {f"{ERROR_OF_WORKER}{worker}": errors[worker] for worker in range(workers)}
    else:
        shown = {WORST_WORKER: tf.cast(tf.argmax(errors), tf.float32)}
    return {**_found(errors), **shown, "loss": loss(context, values, features, labels)}


def watched(variables: Values) -> Scalars:
    """Return {"parts": .., "parts_found": .., "largest_error": ..} of the weights alone; see `metrics`."""
    return _found(_errors_of_workers(_joined(variables)))


def _found(errors: tf.Tensor) -> Scalars:
    return {
        "parts": tf.constant(float(errors.shape[0])),
        "parts_found": tf.reduce_sum(tf.cast(errors <= FOUND_WITHIN, tf.float32)),
        "largest_error": tf.reduce_max(errors),
    }


def _weights_of(context: ModelContext) -> int:
    return context.data.parts * WEIGHTS_OF_A_WORKER


def _ids(context: ModelContext, features: tf.Tensor) -> tf.Tensor:
    first = _weights_of(context)
    return tf.cast(features[:, first : first + WEIGHTS_OF_A_WORKER], tf.int64)


def _split(context: ModelContext, values: Values) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Return (all weights, the rows of each example, [count, WEIGHTS_OF_A_WORKER]).

    The rows are None if the model has none.
    """
    if not has_rows(context.settings):
        return _joined(values), None
    *weights, rows = values
    return _joined(weights), rows[:, :, 0]


def _joined(variables: Values) -> tf.Tensor:
    return tf.concat([tf.convert_to_tensor(variable) for variable in variables], axis=0)


def _errors_of_workers(weights: tf.Tensor) -> tf.Tensor:
    """Return, for each worker, the largest distance of its weights from the known weights: [workers]."""
    known = known_weights(weights.shape[0] // WEIGHTS_OF_A_WORKER)
    return tf.reduce_max(tf.reshape(tf.abs(weights - known), [-1, WEIGHTS_OF_A_WORKER]), axis=1)


def _examples(
    generator: np.random.Generator, count: int, workers: int, worker: int | None, rows: bool
) -> tuple[Numbers, Numbers]:
    """Return (features, labels) of `count` examples for worker number `worker`; see `load`.

    x is 0 except for the worker's weights, and the ids are of its rows. None: all weights and rows are used.
    With `rows` False, the features have no ids and no v.
    """
    width, weights = WEIGHTS_OF_A_WORKER, known_weights(workers)
    own = slice(None) if worker is None else slice(worker * width, (worker + 1) * width)
    features = np.zeros((count, len(weights)), np.float32)
    features[:, own] = _signs(generator, features[:, own].shape)
    labels = features @ weights + NOISE * generator.standard_normal(count)
    if rows:
        # Each example needs the rows after those of the one before, so that all are needed equally often.
        ids = np.resize(np.arange(len(weights))[own], (count, width))
        v = _signs(generator, ids.shape)
        labels += np.sum(known_rows(workers)[ids] * v, axis=1)
        features = np.concatenate([features, ids, v], axis=1, dtype=np.float32)
    return features, labels.astype(np.float32)


def _signs(generator: np.random.Generator, shape: int | tuple[int, ...]) -> npt.NDArray[np.float64]:
    return generator.choice([-1.0, 1.0], shape)


MODEL = Model(
    load=load,
    create_variables=create_variables,
    tables=tables,
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
        f"Each worker knew one of {metrics['parts']:.0f} parts;"
        f" found are those of {metrics['parts_found']:.0f} of {metrics['parts']:.0f} workers",
        f"Largest error: {metrics['largest_error']:.4f}",
        f"Test-Loss: {metrics['loss']:.5f}",
    ],
)
