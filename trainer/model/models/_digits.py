"""What the classifiers of handwritten digits share: everything except their layers."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from trainer.model import data
from trainer.model.models.model import Model, ModelContext, Outputs, Scalars, Values, Variables

v1 = tf.compat.v1

DIGITS = 10

Logits = Callable[[ModelContext, Values, tf.Tensor], tf.Tensor]


def digits_model(
    create_variables: Callable[[ModelContext], Variables],
    logits: Logits,
) -> Model:
    """Return a model that is trained with softmax and cross entropy.

    `logits` returns scores [batch, 10] for flat pixels [batch, pixels].
    """

    def loss(context: ModelContext, variables: Values, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return _cross_entropy(logits(context, variables, features), labels)

    def metrics(context: ModelContext, variables: Values, features: tf.Tensor, labels: tf.Tensor) -> Scalars:
        scores = logits(context, variables, features)
        right = tf.equal(tf.argmax(scores, axis=1), labels)
        test = context.data.test
        tested = test.read(0, len(test)).labels
        return {
            "accuracy": tf.reduce_mean(tf.cast(right, tf.float32)),
            "cross_entropy": _cross_entropy(scores, labels),
            # The accuracy of always guessing the commonest class.
            "largest_class": tf.constant(np.bincount(tested).max() / len(tested), tf.float32),
        }

    def outputs(context: ModelContext, variables: Values, features: tf.Tensor) -> Outputs:
        scores = logits(context, variables, features)
        return {"scores": scores, "probabilities": tf.nn.softmax(scores)}

    return Model(
        load=lambda settings, _workers: data.digits(settings.data_dir),
        create_variables=create_variables,
        loss=loss,
        metrics=metrics,
        outputs=outputs,
        watched=lambda _variables: {},
        step_line=lambda step: (
            f"Step: {step.local_step}, global step: {step.global_step}, Epoch: {step.epoch},"
            f" Batch: {step.batch} of {step.batches_per_epoch}, Cost: {step.loss:.4f},"
            f" AvgTime: {step.average_milliseconds:.2f}ms"
        ),
        summary_lines=lambda metrics: [
            f"Test-Accuracy: {metrics['accuracy']:.4f}",
            f"Validation cross entropy: {metrics['cross_entropy']:.4f}",
        ],
    )


def weights_and_biases(layer: str, shape: Sequence[int]) -> Variables:
    """Return [weights, biases], two new variables: weights of this shape, and a bias for each output.

    The number of outputs is the last size of `shape`. Weights are drawn (Glorot), biases are 0.
    """
    drawn, zeros = v1.glorot_uniform_initializer(), v1.zeros_initializer()
    weights = v1.get_variable(f"{layer}/weights", shape, initializer=drawn, use_resource=True)
    return [weights, v1.get_variable(f"{layer}/biases", shape[-1:], initializer=zeros, use_resource=True)]


def _cross_entropy(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores))
