"""A wide and deep model of clicks: a weight and a row of 16 numbers for each id, and two hidden layers.

The *wide* part is a weight for each id of an example. The *deep* part takes the rows of its ids and the
logarithms of its numbers through layers of 256 and 128 units (Cheng et al., arXiv:1606.07792).
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
import tensorflow as tf

from trainer.contract.settings import TrainingSettings
from trainer.contract.table_models import TABLE_MODELS, rows_of
from trainer.model import click_files, scores
from trainer.model.click_truth import NUMBERS
from trainer.model.clicks import Clicks
from trainer.model.data import Data
from trainer.model.models._digits import weights_and_biases
from trainer.model.models.model import Metrics, Model, ModelContext, Outputs, Table, Values, Variables

SHAPE = TABLE_MODELS["wide_deep"]
# The inputs of the first layer are multiplied by these, so that all are of about one size. A step then also
# changes the rows' part faster than the weights.
_OF_LOGARITHMS, _OF_ROWS = 0.2, 4.0
_TRAIN_EXAMPLES, _TEST_EXAMPLES = 4_000_000, 50_000
# Training reaches about what a model does that knows exactly the ids which were seen so often, and no other.
_SEEN_TIMES = 1000


def load(settings: TrainingSettings, _workers: int) -> Data:
    """Return the clicks in the folder of the settings, or generated ones."""
    return click_files.load(settings, rows_of(settings.table_rows), _TRAIN_EXAMPLES, _TEST_EXAMPLES)


def tables(context: ModelContext) -> Sequence[Table]:
    """Return a table for each part, with a row for each id of every category."""
    rows, (of_wide, of_deep) = sum(rows_of(context.settings.table_rows)), SHAPE.widths
    return [Table("wide", rows, of_wide, _ids, scale=0.0), Table("deep", rows, of_deep, _ids)]


def create_variables(_context: ModelContext) -> Variables:
    """Create the weights and biases of the layers."""
    return [
        variable for layer, shape in SHAPE.layers.items() for variable in weights_and_biases(layer, shape)
    ]


def loss(_context: ModelContext, values: Values, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the mean cross entropy of the clicks."""
    logits = _logits(values, features)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def metrics(
    _context: ModelContext, values: Values, features: tf.Tensor, labels: tf.Tensor
) -> Mapping[str, tf.Tensor]:
    """Return the counts of the logits."""
    return {"counts": scores.score_counts(_logits(values, features), labels)}


def outputs(_context: ModelContext, values: Values, features: tf.Tensor) -> Outputs:
    """Return the logit and the probability of a click for each example."""
    logits = _logits(values, features)
    return {"logits": logits, "probabilities": tf.sigmoid(logits)}


def results(found: Metrics) -> Mapping[str, float]:
    """Return AUC and log loss."""
    return {"auc": scores.auc(found["counts"]), "log_loss": scores.log_loss(found["counts"])}


def levels(context: ModelContext, examples: int) -> Mapping[str, float]:
    """Return AUC and log loss that so many examples let a model reach; nothing for clicks in files."""
    test = context.data.test
    if not isinstance(test, Clicks):
        return {}
    reachable = test.levels(_SEEN_TIMES, min(max(examples, 1), len(context.data.train)))["seen"]
    return {"reachable_auc": reachable.auc, "reachable_log_loss": reachable.log_loss}


def _ids(context: ModelContext, features: tf.Tensor) -> tf.Tensor:
    *before, _ = accumulate(rows_of(context.settings.table_rows), initial=0)
    return features[:, NUMBERS:] + np.array(before, np.int64)


def _logits(values: Values, features: tf.Tensor) -> tf.Tensor:
    *dense, wide, deep = values
    numbers = features[:, :NUMBERS]
    logarithms = _OF_LOGARITHMS * tf.math.log1p(tf.cast(tf.maximum(numbers, 0), tf.float32))
    # Also of those that are missing.
    are_negative = tf.cast(numbers < 0, tf.float32)
    layer = tf.concat(
        [logarithms, are_negative, _OF_ROWS * tf.reshape(deep, [-1, deep.shape[1] * deep.shape[2]])], axis=1
    )
    for weights, biases in zip(dense[:-2:2], dense[1:-2:2], strict=True):
        layer = tf.nn.relu(tf.matmul(layer, weights) + biases)
    of_deep = tf.matmul(layer, dense[-2]) + dense[-1]
    return tf.reduce_sum(wide, axis=[1, 2]) + of_deep[:, 0]


MODEL = Model(
    name="wide_deep",
    learning_rates={"adagrad": 0.05, "sgd": 0.1, "adam": 0.001, "ftrl": 0.05},
    load=load,
    create_variables=create_variables,
    loss=loss,
    metrics=metrics,
    outputs=outputs,
    watched=lambda _variables: {},
    step_line=lambda step: (
        f"Step: {step.local_step}, global step: {step.global_step}, Loss: {step.loss:.4f},"
        f" AvgTime: {step.average_milliseconds:.2f}ms"
    ),
    summary_lines=lambda found: [f"Test-AUC: {found['auc']:.4f}", f"Test-Loss: {found['log_loss']:.4f}"],
    results=results,
    tables=tables,
    levels=levels,
)
