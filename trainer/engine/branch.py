"""Operations that a graph contains once, and runs at several places if a condition holds there."""

from collections.abc import Callable

import tensorflow as tf


class Branch:
    """Operations on one device that several places of a graph can run, each with a number of its own.

    `tf.cond` would add the operations again at each place, and TensorFlow would prepare every copy.
    """

    def __init__(self, build: Callable[[tf.Tensor], tf.Tensor]) -> None:
        """Call `build` once, which adds the operations on the current `tf.device`.

        `build` takes an int64 scalar and returns a boolean scalar, whose value exists once the operations
        have run. All tensors that the operations use must be on the same device.
        """
        self._then = tf.function(build, autograph=False).get_concrete_function(tf.TensorSpec([], tf.int64))
        inputs = [tf.TensorSpec(each.shape, each.dtype) for each in self._then.inputs]
        nothing = tf.function(lambda *_: tf.constant(False), autograph=False)
        self._else = nothing.get_concrete_function(*inputs)

    def run_if(self, condition: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Run the operations with `number` if `condition` is true; return their boolean, else False.

        The tensor is on the current `tf.device`. Its value exists once the operations have run; if
        `condition` is false, at once.
        """
        (ran,) = tf.raw_ops.If(
            cond=condition,
            input=[number, *self._then.captured_inputs],
            Tout=[tf.bool],
            then_branch=self._then,
            else_branch=self._else,
        )
        return ran
