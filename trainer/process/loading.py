"""Loading TensorFlow faster; loading takes a task several seconds."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# At the end of its import TensorFlow imports all of Keras, and goes on if that fails. A task does not need
# Keras.
_KERAS = "keras.src.optimizers"


@contextmanager
def loading_tensorflow() -> Iterator[None]:
    """Return a context in which to import TensorFlow, without Python's garbage collector and without Keras.

    Leaving out the collector saves a third of the time; leaving out Keras saves a tenth of the rest.
    Afterwards the collector runs again, but ignores the objects made so far; Keras can be imported.
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
