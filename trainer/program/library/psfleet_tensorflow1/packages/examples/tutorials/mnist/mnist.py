"""The network of the MNIST tutorials of TensorFlow 1: two hidden layers, in functions that add to a graph.

Signatures, names of variables, initial values and results are the same as in TensorFlow 1.15, so that
checkpoints of that time can be restored.
"""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf

NUM_CLASSES = 10
IMAGE_SIZE = 28
IMAGE_PIXELS = IMAGE_SIZE * IMAGE_SIZE


def inference(images: Any, hidden1_units: int, hidden2_units: int) -> Any:
    """Return the logits [batch, NUM_CLASSES] of flat images [batch, IMAGE_PIXELS]."""
    hidden1 = tf.nn.relu(_layer("hidden1", images, IMAGE_PIXELS, hidden1_units))
    hidden2 = tf.nn.relu(_layer("hidden2", hidden1, hidden1_units, hidden2_units))
    return _layer("softmax_linear", hidden2, hidden2_units, NUM_CLASSES)


def loss(logits: Any, labels: Any) -> Any:
    """Return the mean cross entropy of logits [batch, NUM_CLASSES] for integer labels [batch], a scalar.

    It is also added to tf.losses.get_losses().
    """
    return tf.losses.sparse_softmax_cross_entropy(labels=tf.cast(labels, tf.int64), logits=logits)


def training(loss: Any, learning_rate: Any) -> Any:
    """Return the operation of one step of gradient descent on the scalar `loss`.

    Also create the variable `global_step`, which each step raises by 1, and a summary of the loss.
    """
    tf.summary.scalar("loss", loss)
    global_step = tf.Variable(0, name="global_step", trainable=False)
    return tf.train.GradientDescentOptimizer(learning_rate).minimize(loss, global_step=global_step)


def evaluation(logits: Any, labels: Any) -> Any:
    """Return how many examples have their highest logit at their label: a scalar int32 tensor."""
    return tf.reduce_sum(tf.cast(tf.nn.in_top_k(predictions=logits, targets=labels, k=1), tf.int32))


def _layer(name: str, inputs: Any, input_units: int, units: int) -> Any:
    """Return `inputs` times weights plus biases; the variables are `name`/weights and `name`/biases."""
    with tf.name_scope(name):
        drawn = tf.truncated_normal([input_units, units], stddev=input_units**-0.5)
        weights = tf.Variable(drawn, name="weights")
        biases = tf.Variable(tf.zeros([units]), name="biases")
        return tf.matmul(inputs, weights) + biases
