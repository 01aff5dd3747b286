"""The optimizers that can be asked for, one for each device that holds variables."""

from collections.abc import Callable, Sequence
from functools import partial

import tensorflow as tf

v1 = tf.compat.v1

Gradients = Sequence[tuple[tf.Tensor | tf.IndexedSlices, tf.Variable]]

_MOMENTUM = 0.9
_KINDS: dict[str, Callable[[float], tf.compat.v1.train.Optimizer]] = {
    "sgd": v1.train.GradientDescentOptimizer,
    "momentum": partial(v1.train.MomentumOptimizer, momentum=_MOMENTUM),
    "adagrad": v1.train.AdagradOptimizer,
    "adam": v1.train.AdamOptimizer,
}


class Optimizers:
    """What an optimizer needs beside gradients lies on the device that it is for: nothing of it travels.

    Slots are named after their variable, as in "hidden/weights/Adam". Numbers that are of no variable are
    there on each device: "beta1_power", "beta1_power_1" and so on, which hold the same.
    """

    def __init__(self, name: str, learning_rate: float) -> None:
        self._kind, self._learning_rate = _KINDS[name], learning_rate
        self._optimizers: dict[str, tf.compat.v1.train.Optimizer] = {}
        # By the variable's name, what is first applied to it.
        self.given: dict[str, tuple[tf.Tensor | tf.IndexedSlices, tf.Variable]] = {}

    def apply(self, gradients: Gradients) -> list[tf.Operation]:
        """Apply gradients; for each device an operation that lies there."""
        of_devices: dict[str, list[tuple[tf.Tensor | tf.IndexedSlices, tf.Variable]]] = {}
        for gradient, variable in gradients:
            of_devices.setdefault(variable.device, []).append((gradient, variable))
        return [self._apply_on(device, its) for device, its in of_devices.items()]

    def _apply_on(self, device: str, gradients: Gradients) -> tf.Operation:
        if device not in self._optimizers:
            self._optimizers[device] = self._kind(self._learning_rate)
        for gradient, variable in gradients:
            self.given.setdefault(variable.op.name, (gradient, variable))
        with tf.device(device):
            return self._optimizers[device].apply_gradients(gradients)
