"""What a lost connection to another task looks like in TensorFlow's errors."""

from __future__ import annotations

import tensorflow as tf

from trainer.calls import CallTookTooLong
from trainer.lost_connection import CONNECTION_PHRASES, EMPTY_TASK_PHRASES, LOST_ERRORS

_LOST = tuple(getattr(tf.errors, name) for name in LOST_ERRORS)
_PHRASES = (*CONNECTION_PHRASES, *EMPTY_TASK_PHRASES)


def is_lost_connection(error: Exception) -> bool:
    """Whether this is what a task that went away, or came back empty, looks like."""
    if isinstance(error, (*_LOST, CallTookTooLong)):
        return True
    return isinstance(error, tf.errors.OpError) and any(phrase in str(error) for phrase in _PHRASES)
