"""Loads a SavedModel with TensorFlow alone and lets it serve: `python -I FILE SAVED_MODEL REQUEST ANSWER`.

This file runs in a process of its own that knows nothing of the trainer, as a user's process would. REQUEST
holds the inputs (`numpy.savez`), by their names in the signature. ANSWER gets `outputs/<name>` for all
examples, `first/<name>` for the first example alone, and `variables/<name>`, the variable's SHA-256.
"""

import hashlib
import math
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import tensorflow as tf

SIGNATURE = "serving_default"
# How many numbers of a variable are read at once.
_AT_ONCE = 1 << 22


def main(saved_model: str, request: str, answer: str) -> None:
    """Load the SavedModel, serve the request, and write the answer, all three at these paths.

    Raises SystemExit if this process can import the trainer or psfleet.
    """
    if known := [name for name in ("trainer", "psfleet") if find_spec(name)]:
        raise SystemExit(f"this process must know TensorFlow alone, and it finds {', '.join(known)}")
    loaded = tf.saved_model.load(saved_model)
    serve = loaded.signatures[SIGNATURE]
    with np.load(request) as content:
        inputs = {name: content[name] for name in serve.structured_input_signature[1]}
    results: dict[str, Any] = {}
    for part, count in (("outputs", None), ("first", 1)):
        # A scalar, as for dropout, belongs to all examples.
        part_of = {name: value[:count] if value.ndim else value for name, value in inputs.items()}
        outputs = serve(**{name: tf.constant(value) for name, value in part_of.items()})
        results |= {f"{part}/{name}": value.numpy() for name, value in outputs.items()}
    for variable in getattr(loaded, "variables", ()):
        results[f"variables/{variable.name.removesuffix(':0')}"] = sha256_of(variable, _rows_of(variable))
    np.savez(answer, allow_pickle=False, **results)


def sha256_of(variable: Any, rows: Callable[[int, int], Any]) -> str:  # noqa: ANN401 - an array, or a variable
    """Return the SHA-256, in hex digits, of the type, shape and numbers of a variable.

    `rows(begin, end)` returns rows `begin` to `end` (exclusive), so that only some are in memory at once.
    """
    shape, dtype = tuple(map(int, variable.shape)), str(variable.dtype.name)
    hashed = hashlib.sha256(f"{dtype} {shape}".encode())
    at_once, end = max(1, _AT_ONCE // max(1, math.prod(shape[1:]))), shape[0] if shape else 1
    for begin in range(0, end, at_once):
        block = rows(begin, min(begin + at_once, end))
        hashed.update(np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)
    return hashed.hexdigest()


def _rows_of(variable: tf.Variable) -> Callable[[int, int], Any]:
    """Return a function of (begin, end) that returns these rows of a variable as an array.

    It does not read the whole variable, because that might copy it.
    """
    if not variable.shape.rank:
        return lambda _begin, _end: variable.numpy()
    return lambda begin, end: variable.sparse_read(tf.range(begin, end, dtype=tf.int64)).numpy()


if __name__ == "__main__":
    main(*sys.argv[1:])
