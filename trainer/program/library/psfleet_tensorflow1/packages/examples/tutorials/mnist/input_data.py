"""MNIST as the tutorials of TensorFlow 1 read it, from files on this host: nothing is downloaded.

The files are looked for in the folder that the program names, then in PSFLEET_DATA_DIR (trainer_data_source).
If no data were carried, the bundled digits of 8x8 pixels are used: each is made three times as large, with a
frame of two pixels, 28x28 in all.
"""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_BUNDLED = Path(__file__).parents[7] / "model" / "digits"
_GZIP, _CLASSES = b"\x1f\x8b", 10


class DataSet:
    """Images, with values from 0 to 1, and their labels, in endless batches.

    `images` and `labels` have the shapes that `read_data_sets` describes.
    """

    def __init__(self, images: npt.NDArray[Any], labels: npt.NDArray[Any], seed: int | None) -> None:
        self.images, self.labels = images, labels
        self.num_examples = len(images)
        self._random = np.random.default_rng(seed)
        self._next, self._drawn = np.arange(0), 0

    @property
    def epochs_completed(self) -> int:
        """How many times all examples were drawn, rounded down."""
        return self._drawn // self.num_examples

    def next_batch(
        self,
        batch_size: int,
        fake_data: bool = False,  # noqa: ARG002 - as programs call it
        shuffle: bool = True,
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the next `batch_size` (images, labels); a batch may go over the end of an epoch.

        Each epoch has all examples, in a new random order, or in the order of the file if not `shuffle`.
        `fake_data` is ignored; programs of TensorFlow 1 pass it.
        """
        while len(self._next) < batch_size:
            numbers = np.arange(self.num_examples)
            self._next = np.append(self._next, self._random.permutation(numbers) if shuffle else numbers)
        chosen, self._next = self._next[:batch_size], self._next[batch_size:]
        self._drawn += batch_size
        return self.images[chosen], self.labels[chosen]


class Datasets(NamedTuple):
    """The examples to train on, to validate with (taken from the training file), and to test with."""

    train: DataSet
    validation: DataSet
    test: DataSet


def read_data_sets(
    train_dir: str = "",
    fake_data: bool = False,
    one_hot: bool = False,
    dtype: object = None,  # noqa: ARG001 - float32 was the default
    reshape: bool = True,
    validation_size: int = 5000,
    seed: int | None = None,
    source_url: str = "",  # noqa: ARG001 - nothing is downloaded
) -> Datasets:
    """Return the digits in the folder `train_dir`; without MNIST there, those carried, else the bundled ones.

    Images are float32 [count, 784], or [count, 28, 28, 1] if not `reshape`; labels are integers [count], or
    [count, 10] with a single 1 if `one_hot`. The first `validation_size` training examples, but at most a
    tenth, are for validation. `dtype` and `source_url` are ignored. Raises ValueError for `fake_data`.
    """
    if fake_data:
        raise ValueError("there are no fake data: leave fake_data out")
    folder = _folder(train_dir)
    images, labels = _part(folder, "train", one_hot, reshape)
    chosen = min(validation_size, len(images) // 10)
    return Datasets(
        DataSet(images[chosen:], labels[chosen:], seed),
        DataSet(images[:chosen], labels[:chosen], seed),
        DataSet(*_part(folder, "t10k", one_hot, reshape), seed),
    )


def _folder(train_dir: str) -> Path:
    if any(Path(train_dir).glob("train-images*")):
        return Path(train_dir)
    carried = os.environ.get("PSFLEET_DATA_DIR")
    if carried and os.environ.get("PSFLEET_JOB") != "ps":  # a ps reads no data, so no data are carried to it
        return Path(carried)
    sys.stderr.write(f"psfleet: no MNIST in {train_dir!r}: using the bundled digits\n")
    return _BUNDLED


def _part(folder: Path, part: str, one_hot: bool, reshape: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    pixels, labels = _read(folder, f"{part}-images", 3), _read(folder, f"{part}-labels", 1)
    if folder == _BUNDLED:
        pixels = np.pad(np.kron(pixels, np.ones((1, 3, 3), np.uint8)), ((0, 0), (2, 2), (2, 2)))
    images = np.multiply(pixels, 1 / 255, dtype=np.float32)
    images = images.reshape(len(images), -1) if reshape else images[..., np.newaxis]
    return images, np.eye(_CLASSES)[labels] if one_hot else labels


def _read(folder: Path, name: str, dimensions: int) -> npt.NDArray[np.uint8]:
    """Return the array, with `dimensions` dimensions, in the IDX file `name` of a folder; it may be gzipped.

    Raises FileNotFoundError if there is none, ValueError for another format.
    """
    files = sorted(folder.glob(f"{name}?idx{dimensions}-ubyte*"))
    if not files:
        raise FileNotFoundError(f"{folder} has no {name}-idx{dimensions}-ubyte: see trainer_data_source")
    content = files[0].read_bytes()
    content = gzip.decompress(content) if content.startswith(_GZIP) else content
    if content[:4] != bytes([0, 0, 8, dimensions]):
        raise ValueError(f"{files[0]} is no file of MNIST's {name}")
    shape = np.frombuffer(content, ">u4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
