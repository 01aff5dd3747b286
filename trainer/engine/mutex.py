"""A mutex on a device: a change of variables runs without another change in between."""

from collections.abc import Callable

import tensorflow as tf


def rows_mutex() -> tf.Tensor:
    """Return the mutex, on the current `tf.device`, that protects table rows, their slots and their marks.

    Every process finds the same mutex by its name.
    """
    return tf.raw_ops.MutexV2(shared_name="psfleet/rows_mutex", container="")


def locked(mutex: tf.Tensor, change: Callable[[], tf.Tensor]) -> tf.Tensor:
    """Call `change` to add operations that run under the mutex; return its result as a new tensor.

    The value of the new tensor exists once the mutex is released. The caller must be inside `tf.device` of
    the mutex's device. The value of `change`'s result must exist only once the change is done, because the
    mutex is released then.
    """
    lock = tf.raw_ops.MutexLock(mutex=mutex)
    with tf.control_dependencies([lock]):
        result = change()
    with tf.control_dependencies([result]):
        unlocked = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
    with tf.control_dependencies([unlocked]):
        return tf.identity(result)
