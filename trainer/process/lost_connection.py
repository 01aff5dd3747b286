"""Recognises TensorFlow's errors for the loss of another task by name and text, without TensorFlow."""

_LOST = {"UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError", "PSUnavailableError"}
# Phrases by which TensorFlow's other errors show a lost task.
_PHRASES = ("Connection reset", "Socket closed", "Stream removed", "RST_STREAM", "failed to connect")


def is_lost_connection(exception: str) -> bool:
    """Return whether an exception, printed as "class: message", says that TensorFlow lost another task.

    True for TensorFlow's UnavailableError, AbortedError, CancelledError, DeadlineExceededError and
    PSUnavailableError, and for others of TensorFlow with such words as "Socket closed"; else False.
    """
    package, _, name = exception.partition(":")[0].rpartition(".")
    is_of_tensorflow = package.partition(".")[0] == "tensorflow"
    return is_of_tensorflow and (name in _LOST or any(phrase in exception for phrase in _PHRASES))
