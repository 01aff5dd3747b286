"""Gradients of biases, computed by operations of their own.

On CPUs TensorFlow merges the gradient of a bias with the gradient of its convolution's filters into one
operation of oneDNN, which is slower than the two. A step of the model `cnn` took a tenth more CPU with it.
TensorFlow does not merge two operations that wait for different ones (CheckForNodeMerge in
tensorflow/core/common_runtime/mkl_layout_pass.cc).
"""

from contextlib import AbstractContextManager

import tensorflow as tf

_GRADIENT = "PsfleetBiasAdd"


def bias_gradients_apart() -> AbstractContextManager[object]:
    """Return a context in which a new `tf.nn.bias_add` has a gradient that TensorFlow does not merge.

    The gradient's value is the same. It counts for tf.compat.v1.gradients, not for a tf.GradientTape.
    """
    return tf.compat.v1.get_default_graph().gradient_override_map({"BiasAdd": _GRADIENT})  # type: ignore[no-any-return]


@tf.RegisterGradient(_GRADIENT)  # type: ignore[untyped-decorator]
def _gradients(bias_add: tf.Operation, gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the gradients of both inputs of `bias_add`, given the gradient of its output."""
    _, biases = bias_add.inputs
    with tf.control_dependencies([biases]):
        data_format = bias_add.get_attr("data_format")
        return gradient, tf.raw_ops.BiasAddGrad(out_backprop=gradient, data_format=data_format)
