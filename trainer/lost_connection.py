"""What TensorFlow calls it when another task went away, or came back empty."""

from __future__ import annotations

# Of tf.errors.
LOST_ERRORS = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError")
# In the message of any other of its errors.
LOST_PHRASES = (
    "uninitialized",
    "does not exist",
    "Connection reset",
    "Socket closed",
    "Stream removed",
    "RST_STREAM",
    "failed to connect",
)
