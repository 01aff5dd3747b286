"""The optimizers that `--optimizer` names, one instance for each device that holds variables."""

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
    """One optimizer for each device: its slots and other numbers lie there, so only gradients travel.

    A slot is named after its variable, as in "hidden/weights/Adam". Each device has its own copy of a number
    that belongs to no variable: "beta1_power", "beta1_power_1" and so on hold equal values.
    """

    def __init__(self, name: str, learning_rate: float) -> None:
        self._kind, self._learning_rate = _KINDS[name], learning_rate
        self._optimizers: dict[str, tf.compat.v1.train.Optimizer] = {}
        # Variable's name -> the gradient of the first step that is built, and the variable.
        self.first_applied: dict[str, tuple[tf.Tensor | tf.IndexedSlices, tf.Variable]] = {}

    def apply(self, gradients: Gradients) -> list[tf.Operation]:
        """Return the operations that apply the gradients, one on each device that holds variables."""
        of_devices: dict[str, list[tuple[tf.Tensor | tf.IndexedSlices, tf.Variable]]] = {}
        for gradient, variable in gradients:
            of_devices.setdefault(variable.device, []).append((gradient, variable))
        return [self._apply_on(device, its) for device, its in of_devices.items()]

    def _apply_on(self, device: str, gradients: Gradients) -> tf.Operation:
        if device not in self._optimizers:
            self._optimizers[device] = self._kind(self._learning_rate)
        for gradient, variable in gradients:
            self.first_applied.setdefault(variable.op.name, (gradient, variable))
        with tf.device(device):
            return self._optimizers[device].apply_gradients(gradients)
