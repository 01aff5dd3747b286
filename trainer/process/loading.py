"""Loading TensorFlow, which takes a task seconds."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading_tensorflow() -> Iterator[None]:
    """Keep Python's collector away: what is loaded stays, and looking through it took a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
