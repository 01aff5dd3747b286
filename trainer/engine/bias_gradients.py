"""Gradients of biases, each computed before the other gradients that need the same tensor.

The tensor is still in the processor's cache then: a step of the model `cnn` takes 5 % less CPU in this order.
It also keeps TensorFlow on CPUs from merging the gradient of a bias with the gradient of its convolution's
filters (CheckForNodeMerge in tensorflow/core/common_runtime/mkl_layout_pass.cc) into one operation of oneDNN,
with which a step took a tenth more CPU.
"""

from contextlib import AbstractContextManager

import tensorflow as tf

_GRADIENT = "PsfleetBiasAdd"


def bias_gradients_first() -> AbstractContextManager[object]:
    """Return a context in which the gradient of a new `tf.nn.bias_add` is computed in this order.

    The gradient's value is the same. It counts for tf.compat.v1.gradients, not for a tf.GradientTape.
    """
    return tf.compat.v1.get_default_graph().gradient_override_map({"BiasAdd": _GRADIENT})  # type: ignore[no-any-return]


@tf.RegisterGradient(_GRADIENT)  # type: ignore[untyped-decorator]
def _gradients(bias_add: tf.Operation, gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the gradients of both inputs of `bias_add`, given the gradient of its output."""
    data_format = bias_add.get_attr("data_format")
    of_biases = tf.raw_ops.BiasAddGrad(out_backprop=gradient, data_format=data_format)
    with tf.control_dependencies([of_biases]):
        return tf.identity(gradient), of_biases
