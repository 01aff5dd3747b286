"""The export of a model, as a host writes it and the controller accepts it (docs/contracts.md)."""

import hashlib
import re
from pathlib import Path

# The folder in a run's directory, on the host and on the controller, and the card in it.
EXPORT, CARD = "export", "export.json"
VERSION = 1
# The name of the signature, as TensorFlow Serving expects it. served.py has a copy, because it cannot import
# this file.
SIGNATURE = "serving_default"
# What the card of a program's checkpoint has instead of a model's name.
PROGRAM = "program"
_NAME = "[A-Za-z0-9_][A-Za-z0-9_.=,+@-]{0,254}"
# The files that an export may have, relative to its folder: the files of a SavedModel, and the card.
FILES = re.compile(
    rf"{re.escape(CARD)}|saved_model\.pb|fingerprint\.pb|keras_metadata\.pb"
    rf"|variables/variables\.(?:index|data-[0-9]{{5}}-of-[0-9]{{5}})"
    rf"|assets(?:\.extra)?/{_NAME}(?:/{_NAME}){{0,6}}"
)


def signature_name(tensor: str) -> str:
    """Return the name that a graph's tensor gets in a signature.

    Examples: "a/b:0" and "a/b" -> "a_b"; "a/b:1" -> "a_b_1"
    """
    operation, _, place = tensor.partition(":")
    return operation.replace("/", "_") + (f"_{place}" if place not in {"", "0"} else "")


def program_fingerprint(checkpoint: Path) -> str:
    """Return the fingerprint, 16 hex digits, of a program's checkpoint, which is a path without a suffix.

    It is the beginning of the SHA-256 of `<checkpoint>.index`, which has a checksum of each variable. Raises
    OSError if that file cannot be read.
    """
    return hashlib.sha256(Path(f"{checkpoint}.index").read_bytes()).hexdigest()[:16]
