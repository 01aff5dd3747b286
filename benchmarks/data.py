"""The examples of every run: the bundled digits, enlarged to MNIST's 28x28 pixels, and rows of tables."""

import struct
from pathlib import Path

import numpy as np

from benchmarks.rows import Workload
from trainer.contract.data_files import IMAGES_MAGIC, LABELS_MAGIC
from trainer.model import idx

ROOT = Path(__file__).resolve().parents[1]
_DIGITS = ROOT / "trainer" / "model" / "digits"
_SIDE, _ENLARGED = 28, 3
_COUNTS = {"train": 10_000, "t10k": 1_000}


def examples_of(workload: Workload, folder: Path) -> Path:
    """Return the folder below `folder` with a workload's examples; write them if it does not exist.

    Workloads without tables share one folder.
    """
    place = folder / (workload.name if workload.tables else "digits")
    if not place.exists():
        place.mkdir(parents=True)
        if workload.tables:
            workload.tables.write(place)
        else:
            _write_digits(place)
    return place


def _write_digits(folder: Path) -> None:
    """Write MNIST's four files, with 10,000 training and 1,000 test images, the same in every run.

    Each image is enlarged, and at a random place in its frame.
    """
    generator = np.random.default_rng(20_260)
    for part, count in _COUNTS.items():
        images, labels = idx.read_images_and_labels(_DIGITS, part)
        drawn = generator.integers(len(images), size=count)
        large = images[drawn].repeat(_ENLARGED, axis=1).repeat(_ENLARGED, axis=2)
        frames = np.zeros((count, _SIDE, _SIDE), np.uint8)
        side = large.shape[1]
        for frame, image, (row, column) in zip(
            frames, large, generator.integers(_SIDE - side + 1, size=(count, 2)), strict=True
        ):
            frame[row : row + side, column : column + side] = image
        header = struct.pack(">4I", IMAGES_MAGIC, *frames.shape)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(header + frames.tobytes())
        header = struct.pack(">2I", LABELS_MAGIC, count)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(header + labels[drawn].tobytes())
