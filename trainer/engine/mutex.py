"""A change of variables that no other one comes between."""

from collections.abc import Callable

import tensorflow as tf


def rows_mutex() -> tf.Tensor:
    """Return the mutex of the device in force under which a push changes what lies there.

    Every process finds the same one by its name.
    """
    return tf.raw_ops.MutexV2(shared_name="psfleet/rows_mutex", container="")


def locked(mutex: tf.Tensor, change: Callable[[], tf.Tensor]) -> tf.Tensor:
    """Return the result of a change that no other one under this mutex comes between, on its device.

    The result must not be there before the change is.
    """
    lock = tf.raw_ops.MutexLock(mutex=mutex)
    with tf.control_dependencies([lock]):
        result = change()
    with tf.control_dependencies([result]):
        unlocked = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
    with tf.control_dependencies([unlocked]):
        return tf.identity(result)
