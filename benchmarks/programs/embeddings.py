"""The model of the workloads with tables: an embedding of each of 26 ids, and layers of 256 and 128 units."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.tables import COUNT, FILE, NUMBERS, TESTED, WIDTH
from trainer.contract.settings import TrainingSettings
from trainer.model import scores
from trainer.model.data import Data, Examples
from trainer.model.models import REGISTRY
from trainer.model.models._digits import weights_and_biases
from trainer.model.models.model import ModelContext, Outputs, Table, Values, Variables

_HIDDEN = (256, 128)


def load(settings: TrainingSettings, _workers: int) -> Data:
    """Return the examples that `Tables.write` wrote into the settings' folder.

    The first TESTED examples are the test data, all others the training data.
    """
    with np.load(Path(settings.data_dir, FILE)) as found:
        features, labels = found["features"], found["labels"]
    train, test = (Examples(features[part], labels[part]) for part in (slice(TESTED, None), slice(TESTED)))
    return Data(train, test)


def tables(context: ModelContext) -> Sequence[Table]:
    """Return the 26 tables; table i is looked up with the i-th id of an example."""
    with np.load(Path(context.settings.data_dir, FILE)) as found:
        rows = int(found["rows"])
    return [Table(f"table_{number}", rows, WIDTH, partial(_ids, number)) for number in range(COUNT)]


def create_variables(_context: ModelContext) -> Variables:
    """Create and return the weights and biases of the three layers, in order."""
    inputs, (first, second) = NUMBERS + COUNT * WIDTH, _HIDDEN
    layers = {"first": (inputs, first), "second": (first, second), "output": (second, 1)}
    return [variable for layer, shape in layers.items() for variable in weights_and_biases(layer, shape)]


def loss(_context: ModelContext, values: Values, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the mean cross entropy of a batch, a scalar; `labels` are 0 or 1."""
    logits = _logits(values, features)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def metrics(
    _context: ModelContext, values: Values, features: tf.Tensor, labels: tf.Tensor
) -> Mapping[str, tf.Tensor]:
    """Return {"counts": how many examples of each label have a logit in each bin, int64 [2, bins]}."""
    return {"counts": scores.score_counts(_logits(values, features), labels)}


def outputs(_context: ModelContext, values: Values, features: tf.Tensor) -> Outputs:
    """Return {"logits": the logit of each example}."""
    return {"logits": _logits(values, features)}


def _ids(number: int, _context: ModelContext, features: tf.Tensor) -> tf.Tensor:
    column = NUMBERS + number
    return tf.cast(features[:, column : column + 1], tf.int64)


def _logits(values: Values, features: tf.Tensor) -> tf.Tensor:
    dense, rows = values[:-COUNT], values[-COUNT:]
    embeddings = tf.concat(rows, axis=1)
    deep = tf.reshape(embeddings, [-1, COUNT * WIDTH])
    layer = tf.concat([tf.math.log1p(tf.cast(features[:, :NUMBERS], tf.float32)), deep], axis=1)
    for weights, biases in zip(dense[:-2:2], dense[1:-2:2], strict=True):
        layer = tf.nn.relu(tf.matmul(layer, weights) + biases)
    of_deep = (tf.matmul(layer, dense[-2]) + dense[-1])[:, 0]
    # The first number of a row is also the weight of its id.
    return of_deep + tf.reduce_sum(embeddings[:, :, 0], axis=1)


# It has the name of a model of the trainer, because the trainer knows no other names; that model is not
# measured.
MODEL = replace(
    REGISTRY["wide_deep"],
    load=load,
    tables=tables,
    create_variables=create_variables,
    loss=loss,
    metrics=metrics,
    outputs=outputs,
)
