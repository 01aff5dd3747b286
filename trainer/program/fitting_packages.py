"""Which versions of packages fit the TensorFlow of a program."""

from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

# The first release of TensorFlow 2 that has Keras 3; with tf_keras it has Keras 2.
_WITH_KERAS_3 = 16
# TensorFlow Probability refuses an older TensorFlow. Release of TensorFlow 2 -> the first version for it.
_PROBABILITY = {12: "0.20.1", 13: "0.21.0", 14: "0.22.1", 15: "0.23.0", 16: "0.24.0", 18: "0.25.0"}


def installed_tensorflow() -> str:
    """Return the version of the TensorFlow that this Python has, such as "2.15.1"; "" if it has none.

    The program runs with the same Python.
    """
    for name in ("tensorflow-cpu", "tensorflow"):
        with suppress(PackageNotFoundError):
            return version(name)
    return ""


def tf_keras_for(tensorflow: str) -> str:
    """Return the requirement that gives Keras 2 to this version of TensorFlow; "" if none is needed.

    Example: "2.18.1" -> "tf_keras==2.18.0"
    """
    return f"tf_keras==2.{_release(tensorflow)}.0" if _release(tensorflow) >= _WITH_KERAS_3 else ""


def tensorboard_for(tensorflow: str) -> str:
    """Return the requirement of the TensorBoard that fits this version of TensorFlow."""
    return f"tensorboard==2.{_release(tensorflow)}.0"


def probability_for(tensorflow: str) -> str:
    """Return the requirement of the newest TensorFlow Probability that takes this version of TensorFlow."""
    fitting = max((each for each in _PROBABILITY if each <= _release(tensorflow)), default=min(_PROBABILITY))
    return f"tensorflow_probability=={_PROBABILITY[fitting]}"


def _release(tensorflow: str) -> int:
    """Return the release of a version of TensorFlow 2, such as 15 for "2.15.1"; 0 for ""."""
    return int(tensorflow.split(".")[1]) if tensorflow else 0
