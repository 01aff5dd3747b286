"""Loads a SavedModel by TensorFlow alone and lets it serve: `python -I FILE SAVED_MODEL REQUEST ANSWER`.

This file runs in a process of its own that knows nothing of the trainer, as a user's process would. REQUEST
holds the inputs (`numpy.savez`), by the names of the signature. ANSWER gets `outputs/<name>` for all of them,
`first/<name>` for the first one alone, and `variables/<name>`.
"""

import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import tensorflow as tf

SIGNATURE = "serving_default"


def main(saved_model: str, request: str, answer: str) -> None:
    """Load the model, and write what it answers."""
    if known := [name for name in ("trainer", "psfleet") if find_spec(name)]:
        raise SystemExit(f"this process must know TensorFlow alone, and it finds {', '.join(known)}")
    loaded = tf.saved_model.load(saved_model)
    serve = loaded.signatures[SIGNATURE]
    with np.load(request) as asked:
        given = {name: asked[name] for name in serve.structured_input_signature[1]}
    found: dict[str, Any] = {}
    for part, count in (("outputs", None), ("first", 1)):
        # A single number, as for dropout, is of all examples.
        part_of = {name: value[:count] if value.ndim else value for name, value in given.items()}
        outputs = serve(**{name: tf.constant(value) for name, value in part_of.items()})
        found |= {f"{part}/{name}": value.numpy() for name, value in outputs.items()}
    for variable in getattr(loaded, "variables", ()):
        found[f"variables/{variable.name.removesuffix(':0')}"] = variable.numpy()
    np.savez(answer, allow_pickle=False, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
