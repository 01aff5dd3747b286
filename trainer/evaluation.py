"""What a model is worth: its metrics over examples, for a task that trains and for one that took no part."""

from __future__ import annotations

import tensorflow as tf

from trainer.data import Examples
from trainer.models.model import Model, ModelContext, Variables

v1 = tf.compat.v1

# Examples that are evaluated at once; all of a test set may not fit into memory.
EVALUATION_BATCH = 1000


class Evaluation:
    """The operations that evaluate a model, in the default graph."""

    def __init__(self, model: Model, context: ModelContext, variables: Variables) -> None:
        """Add them, for examples of the shapes and types of the test examples."""
        test = context.data.test
        self._features = v1.placeholder(tf.float32, [None, *test.features.shape[1:]])
        self._labels = v1.placeholder(tf.as_dtype(test.labels.dtype), [None, *test.labels.shape[1:]])
        self._metrics = dict(model.metrics(context, variables, self._features, self._labels))

    def run(self, session: tf.compat.v1.Session, examples: Examples) -> dict[str, float]:
        """The model's metrics over these examples, a mean weighted by the size of each piece.

        Raises tf.errors.OpError.
        """
        totals = dict.fromkeys(self._metrics, 0.0)
        for start in range(0, len(examples), EVALUATION_BATCH):
            piece = slice(start, start + EVALUATION_BATCH)
            features, labels = examples.features[piece], examples.labels[piece]
            feeds = {self._features: features, self._labels: labels}
            for name, value in session.run(self._metrics, feeds).items():
                totals[name] += float(value) * len(features) / len(examples)
        return totals
