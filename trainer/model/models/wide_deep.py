"""A wide and deep model of clicks: a weight and a row of 16 numbers for each id, and two hidden layers.

The *wide* part is a weight for each id of an example. The *deep* part takes the rows of its ids and the
logarithms of its numbers through layers of 256 and 128 units (Cheng et al., arXiv:1606.07792).
"""

from collections.abc import Sequence

import tensorflow as tf

from trainer.contract.table_models import TABLE_MODELS
from trainer.model.models._clicks import click_model, inputs_of, table, through
from trainer.model.models.model import ModelContext, Table, Values

# Rows are multiplied by this, so that all inputs of the first layer are of about one size. A step then also
# changes the rows' part faster than the weights.
_OF_ROWS = 4.0


def tables(context: ModelContext) -> Sequence[Table]:
    """Return a table for each part."""
    of_wide, of_deep = TABLE_MODELS["wide_deep"].widths
    return [table(context, "wide", of_wide, scale=0.0), table(context, "deep", of_deep)]


def logits(values: Values, features: tf.Tensor) -> tf.Tensor:
    """Return the logit of each example."""
    *dense, weights, biases, wide, deep = values
    rows = _OF_ROWS * tf.reshape(deep, [-1, deep.shape[1] * deep.shape[2]])
    hidden = through(tf.concat([inputs_of(features), rows], axis=1), dense)
    return tf.reduce_sum(wide, axis=[1, 2]) + (tf.matmul(hidden, weights) + biases)[:, 0]


_LEARNING_RATES = {"adagrad": 0.05, "sgd": 0.1, "adam": 0.001, "ftrl": 0.05}
MODEL = click_model("wide_deep", _LEARNING_RATES, tables, logits)
