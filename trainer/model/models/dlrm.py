"""DLRM, a model of clicks: a row of 16 numbers for each id, and the products of all pairs of these rows.

The *bottom* layers make a row of an example's numbers. The *top* layers take this row, and its products with
the rows of the example's ids and of these with each other, to the logit (Naumov et al., arXiv:1906.00091).
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from trainer.contract.table_models import TABLE_MODELS
from trainer.model.models._clicks import click_model, inputs_of, table, through
from trainer.model.models.model import ModelContext, Table, Values

# Rows are multiplied by this. Products of large rows learn more slowly.
_OF_ROWS = 2.0
_BOTTOM = 2 * sum(name.startswith("bottom") for name in TABLE_MODELS["dlrm"].layers)


def tables(context: ModelContext) -> Sequence[Table]:
    """Return the one table."""
    (width,) = TABLE_MODELS["dlrm"].widths
    return [table(context, "rows", width)]


def logits(values: Values, features: tf.Tensor) -> tf.Tensor:
    """Return the logit of each example."""
    *dense, weights, biases, rows = values
    bottom = through(inputs_of(features), dense[:_BOTTOM])
    vectors = tf.concat([bottom[:, tf.newaxis], _OF_ROWS * rows], axis=1)
    hidden = through(tf.concat([bottom, _products(vectors)], axis=1), dense[_BOTTOM:])
    return (tf.matmul(hidden, weights) + biases)[:, 0]


def _products(vectors: tf.Tensor) -> tf.Tensor:
    """Return the dot product of each pair of an example's vectors [batch, count, width]."""
    count = vectors.shape[1]
    of_all = tf.reshape(tf.matmul(vectors, vectors, transpose_b=True), [-1, count * count])
    first, second = np.tril_indices(count, -1)
    return tf.gather(of_all, first * count + second, axis=1)


_LEARNING_RATES = {"adagrad": 0.05, "sgd": 0.1, "adam": 0.002, "ftrl": 0.05}
MODEL = click_model("dlrm", _LEARNING_RATES, tables, logits)
