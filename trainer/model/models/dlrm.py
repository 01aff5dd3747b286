"""DLRM, a model of clicks: a row of 16 numbers for each id; all rows of an example are multiplied in pairs.

The *bottom* layers make a row of an example's numbers. The *top* layers take this row, and its products with
the rows of the example's ids and of these with each other, to the logit (Naumov et al., arXiv:1906.00091).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.model.models._clicks import click_model, inputs_of, relu_layers, table
from trainer.model.models.model import ModelContext, Table, Values

CARD: dict[str, Any] = {
    "learning_rates": {"adagrad": 0.05, "sgd": 0.1, "adam": 0.002, "ftrl": 0.05},
    "settings": ["table_rows"],
    "data": "clicks",
    "metrics": {"auc": "higher", "log_loss": "lower"},
    "goals": {"auc": {"level": "reachable_auc", "minimum": -0.03}},
    # Half of what lies between the level and a model that knows nothing, because a batch's loss is noisy.
    "target_loss": {"level": "reachable_log_loss", "maximum": 0.05},
    "tables": {"rows": {"width": 16, "rows": "table_rows"}},
    "layers": {
        # 13 logarithms of numbers, and as many that say which numbers are negative.
        "bottom_first": [26, 64],
        "bottom_second": [64, 16],
        # The products of 27 vectors in pairs, 351, and one of the vectors.
        "first": [367, 256],
        "second": [256, 128],
        "output": [128, 1],
    },
}

# Rows are multiplied by this. Products of large rows learn more slowly.
_OF_ROWS = 2.0
_BOTTOM = 2 * sum(name.startswith("bottom") for name in CARD["layers"])


def tables(context: ModelContext) -> Sequence[Table]:
    """Return the model's only table, in a list: a row of 16 numbers for each id."""
    return [table(context, name, entry["width"]) for name, entry in CARD["tables"].items()]


def logits(values: Values, features: tf.Tensor) -> tf.Tensor:
    """Return the logit of each example, [batch]."""
    *dense, weights, biases, rows = values
    bottom = relu_layers(inputs_of(features), dense[:_BOTTOM])
    vectors = tf.concat([bottom[:, tf.newaxis], _OF_ROWS * rows], axis=1)
    hidden = relu_layers(tf.concat([bottom, _products(vectors)], axis=1), dense[_BOTTOM:])
    return tf.nn.bias_add(tf.matmul(hidden, weights), biases)[:, 0]


def _products(vectors: tf.Tensor) -> tf.Tensor:
    """Return the dot products of all pairs of an example's vectors [batch, count, width]: [batch, pairs]."""
    count = vectors.shape[1]
    of_all = tf.reshape(tf.matmul(vectors, vectors, transpose_b=True), [-1, count * count])
    first, second = np.tril_indices(count, -1)
    return tf.gather(of_all, first * count + second, axis=1)


MODEL = click_model(CARD["layers"], tables, logits)
