"""A wide and deep model of clicks: a weight and a row of 16 numbers for each id, and two hidden layers.

The *wide* part is a weight for each id of an example. The *deep* part takes the rows of its ids and the
logarithms of its numbers through layers of 256 and 128 units (Cheng et al., arXiv:1606.07792).
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from trainer.model.models._clicks import click_model, inputs_of, relu_layers, table
from trainer.model.models.model import ModelContext, Table, Values

CARD: dict[str, Any] = {
    "learning_rates": {"adagrad": 0.05, "sgd": 0.1, "adam": 0.001, "ftrl": 0.05},
    "settings": ["table_rows"],
    "data": "clicks",
    "metrics": {"auc": "higher", "log_loss": "lower"},
    "goals": {"auc": {"level": "reachable_auc", "minimum": -0.03}},
    # Half of what lies between the level and a model that knows nothing, because a batch's loss is noisy.
    "target_loss": {"level": "reachable_log_loss", "maximum": 0.05},
    "tables": {
        "wide": {"width": 1, "rows": "table_rows"},
        "deep": {"width": 16, "rows": "table_rows"},
    },
    "layers": {
        # 13 logarithms of numbers, as many that say which numbers are negative, and 26 rows of 16.
        "first": [442, 256],
        "second": [256, 128],
        "output": [128, 1],
    },
}

# Rows are multiplied by this, so that all inputs of the first layer are of about one size. A step then also
# changes the rows' part faster than the weights.
_OF_ROWS = 4.0


def tables(context: ModelContext) -> Sequence[Table]:
    """Return the two tables, "wide" and "deep"."""
    wide, deep = (each["width"] for each in CARD["tables"].values())
    return [table(context, "wide", wide, scale=0.0), table(context, "deep", deep)]


def logits(values: Values, features: tf.Tensor) -> tf.Tensor:
    """Return the logit of each example, [batch]."""
    *dense, weights, biases, wide, deep = values
    rows = _OF_ROWS * tf.reshape(deep, [-1, deep.shape[1] * deep.shape[2]])
    hidden = relu_layers(tf.concat([inputs_of(features), rows], axis=1), dense)
    return tf.reduce_sum(wide, axis=[1, 2]) + tf.nn.bias_add(tf.matmul(hidden, weights), biases)[:, 0]


MODEL = click_model(CARD["layers"], tables, logits)
