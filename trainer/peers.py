"""What a lost connection to another task looks like in TensorFlow's errors."""

from __future__ import annotations

import tensorflow as tf

from trainer.ledger import CallTookTooLong

_LOST_PHRASES = (
    "uninitialized",
    "does not exist",
    "Connection reset",
    "Socket closed",
    "Stream removed",
    "RST_STREAM",
    "failed to connect",
)


def is_lost_connection(error: Exception) -> bool:
    """Whether this is what a ps that went away, or came back empty, looks like."""
    lost = (
        tf.errors.UnavailableError,
        tf.errors.AbortedError,
        tf.errors.CancelledError,
        tf.errors.DeadlineExceededError,
    )
    if isinstance(error, (*lost, CallTookTooLong)):
        return True
    return isinstance(error, tf.errors.OpError) and any(phrase in str(error) for phrase in _LOST_PHRASES)
