"""Loading TensorFlow, which takes a task seconds."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# TensorFlow loads all of Keras in the end, unless that fails; a task needs none of it.
_KERAS = "keras.src.optimizers"


@contextmanager
def loading_tensorflow() -> Iterator[None]:
    """Keep Python's collector away, and Keras: a third of the time, and a tenth of what was left.

    What is loaded stays, and the collector would look through it again and again.
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
