"""What the models of clicks share: everything except their tables and how they make a logit."""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import numpy as np
import tensorflow as tf

from trainer.contract.data_files import NUMBERS
from trainer.contract.settings import TrainingSettings
from trainer.contract.table_models import rows_of
from trainer.model import click_files, scores
from trainer.model.clicks import Clicks
from trainer.model.data import Data
from trainer.model.models._digits import weights_and_biases
from trainer.model.models.model import Metrics, Model, ModelContext, Outputs, Table, Values, Variables

# The logarithms of the numbers are multiplied by this, so that all inputs are of about one size.
_OF_LOGARITHMS = 0.2
_TRAIN_EXAMPLES, _TEST_EXAMPLES = 4_000_000, 50_000
# Training reaches about what a model does that knows exactly the ids which were seen so often, and no other.
_SEEN_TIMES = 1000

Logits = Callable[[Values, tf.Tensor], tf.Tensor]


def click_model(
    layers: Mapping[str, Sequence[int]],
    tables: Callable[[ModelContext], Sequence[Table]],
    logits: Logits,
) -> Model:
    """Return a model that is trained with sigmoid and cross entropy.

    `layers` is {layer: [inputs, units]}; the variables are the weights and biases of each layer in turn.
    `logits` takes these, then the rows of each table, as one list, and the features; it returns [batch].
    """

    def loss(_context: ModelContext, values: Values, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        of_examples = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits(values, features))
        return tf.reduce_mean(of_examples)

    def metrics(
        _context: ModelContext, values: Values, features: tf.Tensor, labels: tf.Tensor
    ) -> Mapping[str, tf.Tensor]:
        return {"counts": scores.score_counts(logits(values, features), labels)}

    def outputs(_context: ModelContext, values: Values, features: tf.Tensor) -> Outputs:
        of_examples = logits(values, features)
        return {"logits": of_examples, "probabilities": tf.sigmoid(of_examples)}

    def create_variables(_context: ModelContext) -> Variables:
        return [each for layer, shape in layers.items() for each in weights_and_biases(layer, shape)]

    return Model(
        load=_load,
        create_variables=create_variables,
        loss=loss,
        metrics=metrics,
        outputs=outputs,
        watched=lambda _variables: {},
        step_line=lambda step: (
            f"Step: {step.local_step}, global step: {step.global_step}, Loss: {step.loss:.4f},"
            f" AvgTime: {step.average_milliseconds:.2f}ms"
        ),
        summary_lines=lambda results: [
            f"Test-AUC: {results['auc']:.4f}",
            f"Test-Loss: {results['log_loss']:.4f}",
        ],
        results=_results,
        tables=tables,
        levels=_levels,
    )


def table(context: ModelContext, name: str, width: int, scale: float = 0.05) -> Table:
    """Return a table whose rows are the ids of all 26 categories, one category after the other.

    `width` is the number of numbers in a row; its first values are drawn from -`scale` to `scale`. For clicks
    in files, `hashed` has the rows into which values are hashed.
    """
    rows = rows_of(context.settings.table_rows)
    begins = accumulate(rows[:-1], initial=0)
    # The first row of each category is for missing values.
    hashed = [(begin + 1, count - 1) for begin, count in zip(begins, rows, strict=True)]
    is_of_files = isinstance(context.data.train, click_files.ClickFiles)
    return Table(name, sum(rows), width, _ids, scale, hashed if is_of_files else ())


def inputs_of(features: tf.Tensor) -> tf.Tensor:
    """Return the inputs that a model makes of the numbers of clicks: [batch, 2 * NUMBERS].

    The first half is the scaled logarithm of 1 + number, 0 for negative numbers. The second half is 1 for
    numbers that are negative, as missing numbers are, else 0.
    """
    numbers = features[:, :NUMBERS]
    logarithms = _OF_LOGARITHMS * tf.math.log1p(tf.cast(tf.maximum(numbers, 0), tf.float32))
    return tf.concat([logarithms, tf.cast(numbers < 0, tf.float32)], axis=1)


def relu_layers(layer: tf.Tensor, weights_and_biases: Values) -> tf.Tensor:
    """Return the output [batch, units] of dense layers with rectified units, for the input [batch, inputs].

    `weights_and_biases` has the weights and the biases of each layer in turn.
    """
    for weights, biases in zip(weights_and_biases[::2], weights_and_biases[1::2], strict=True):
        layer = tf.nn.relu(tf.nn.bias_add(tf.matmul(layer, weights), biases))
    return layer


def _load(settings: TrainingSettings, _workers: int) -> Data:
    """Return the clicks in the settings' `data_dir`; if that is "", generated clicks (`click_files.load`)."""
    return click_files.load(settings, rows_of(settings.table_rows), _TRAIN_EXAMPLES, _TEST_EXAMPLES)


def _results(metrics: Metrics) -> Mapping[str, float]:
    """Return {"auc": .., "log_loss": ..}."""
    return {"auc": scores.auc(metrics["counts"]), "log_loss": scores.log_loss(metrics["counts"])}


def _levels(context: ModelContext, examples: int) -> Mapping[str, float]:
    """Return {"reachable_auc": .., "reachable_log_loss": ..} after training on `examples` examples.

    Return {} for clicks in files, because nobody knows what can be reached with them.
    """
    test = context.data.test
    if not isinstance(test, Clicks):
        return {}
    reachable = test.levels(_SEEN_TIMES, min(max(examples, 1), len(context.data.train)))["seen"]
    return {"reachable_auc": reachable.auc, "reachable_log_loss": reachable.log_loss}


def _ids(context: ModelContext, features: tf.Tensor) -> tf.Tensor:
    *before, _ = accumulate(rows_of(context.settings.table_rows), initial=0)
    return features[:, NUMBERS:] + np.array(before, np.int64)
