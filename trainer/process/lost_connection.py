"""What TensorFlow says when another task went away, known without TensorFlow."""

_LOST = {"UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError", "PSUnavailableError"}
# In the message of any other of its errors.
_PHRASES = ("Connection reset", "Socket closed", "Stream removed", "RST_STREAM", "failed to connect")


def is_lost_connection(exception: str) -> bool:
    """Whether an exception is TensorFlow's for that, as Python prints it: its class, a colon, its message."""
    package, _, name = exception.partition(":")[0].rpartition(".")
    is_its = package.partition(".")[0] == "tensorflow"
    return is_its and (name in _LOST or any(phrase in exception for phrase in _PHRASES))
