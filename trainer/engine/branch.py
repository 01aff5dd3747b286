"""Operations that a graph has once, and runs at several of its places if a condition holds there."""

from collections.abc import Callable

import tensorflow as tf


class Branch:
    """Operations on one device, in a function of the graph that takes a number.

    `tf.cond` would add its operations anew at each place, and TensorFlow would prepare all of them.
    """

    def __init__(self, build: Callable[[tf.Tensor], tf.Tensor]) -> None:
        """Build the operations on the device in force; `build` takes an int64.

        It returns a boolean that is there once they have run. What they use must be on the device.
        """
        self._then = tf.function(build, autograph=False).get_concrete_function(tf.TensorSpec([], tf.int64))
        inputs = [tf.TensorSpec(each.shape, each.dtype) for each in self._then.inputs]
        nothing = tf.function(lambda *_: tf.constant(False), autograph=False)
        self._else = nothing.get_concrete_function(*inputs)

    def run_if(self, condition: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Return a boolean on the device in force, there once the operations have run if they have to."""
        (ran,) = tf.raw_ops.If(
            cond=condition,
            input=[number, *self._then.captured_inputs],
            Tout=[tf.bool],
            then_branch=self._then,
            else_branch=self._else,
        )
        return ran
