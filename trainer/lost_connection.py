"""What TensorFlow calls it when another task went away, or came back empty."""

from __future__ import annotations

# Of tf.errors.
LOST_ERRORS = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError")
# In the message of any other of its errors.
CONNECTION_PHRASES = (
    "Connection reset",
    "Socket closed",
    "Stream removed",
    "RST_STREAM",
    "failed to connect",
)
# What a ps that came back empty answers. Only the trainer's own tasks know that all was set before: in
# another program the same words are those of a forgotten initializer, or of a missing file.
EMPTY_TASK_PHRASES = ("uninitialized", "does not exist")
