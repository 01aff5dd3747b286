"""Exports as a host sends them, without TensorFlow, with whatever a test wants in them."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.contract.export import CARD, VERSION

FILES: Mapping[str, bytes] = {
    "saved_model.pb": b"graph",
    "variables/variables.index": b"index",
    "variables/variables.data-00000-of-00001": b"numbers",
}
STEP, FINGERPRINT = 40, "0123456789abcdef"
# As `checkpointed` is recorded, beside the event.
SAVED = {"global_step": STEP, "path": f"/x/model.ckpt-{STEP}", "seconds": 0.1, "fingerprint": FINGERPRINT}


def card_of(**changes: object) -> dict[str, Any]:
    """The card of an export; a change to None leaves the field out."""
    entries = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        for name, content in FILES.items()
    }
    features, y = {"dtype": "float32", "shape": [None]}, {"dtype": "float32", "shape": [None]}
    card = {
        **{"version": VERSION, "run_id": "r1", "release": "0" * 12, "model": "linear"},
        **{"global_step": STEP, "checkpoint": f"model.ckpt-{STEP}", "fingerprint": FINGERPRINT},
        **{"variables_fingerprint": "fedcba9876543210", "metrics": {"loss": 0.11, "bias": 10.0}},
        **{"examples": 1000, "tensorflow": "2.21.0", "inputs": {"features": features}, "outputs": {"y": y}},
        **{"checked": {"examples": 1000, "bound": 2**-20, "largest_difference": 0.0}, "files": entries},
    }
    return {name: value for name, value in (card | changes).items() if value is not None}


def write_export(
    folder: Path, files: Mapping[str, bytes] = FILES, card: Mapping[str, Any] | None = None
) -> Path:
    """Write an export into a folder, and return that."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / CARD).write_text(json.dumps(card_of() if card is None else card))
    return folder
