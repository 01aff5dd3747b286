"""Loading TensorFlow faster; it takes a task seconds."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# TensorFlow imports all of Keras at its end, and goes on if that fails. A task does not need Keras.
_KERAS = "keras.src.optimizers"


@contextmanager
def loading_tensorflow() -> Iterator[None]:
    """Return a context in which to import TensorFlow, without Python's garbage collector and without Keras.

    The first saves a third of the time, the second a tenth of the rest. The imported objects stay for the
    life of the process, so the collector need never scan them.
    """
    gc.disable()
    sys.modules.setdefault(_KERAS, None)  # type: ignore[arg-type]
    try:
        yield
    finally:
        if sys.modules[_KERAS] is None:
            del sys.modules[_KERAS]
        gc.freeze()
        gc.enable()
