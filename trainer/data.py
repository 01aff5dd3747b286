"""Examples to train on and to test with, and endless batches of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer import idx
from trainer.exit_codes import INPUT
from trainer.failure import TaskFailure

BUNDLED_DIGITS = Path(__file__).parent / "digits"
_SHUFFLE_BUFFER = 60_000


@dataclass(frozen=True)
class Examples:
    """Features [count, ...] as float32 and the label of each."""

    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.generic]

    def __len__(self) -> int:
        """How many examples these are."""
        return len(self.features)


@dataclass(frozen=True)
class Data:
    """What a model learns from and what it is judged by."""

    train: Examples
    test: Examples


def digits(data_dir: str) -> Data:
    """Handwritten digits: flat pixels from 0 to 1 and labels from 0 to 9.

    `data_dir` is a folder of MNIST's IDX files; empty: the bundled digits. Raises TaskFailure (`input`).
    """
    folder = Path(data_dir) if data_dir else BUNDLED_DIGITS
    train, test = _digits_part(folder, "train"), _digits_part(folder, "t10k")
    if train.features.shape[1] != test.features.shape[1]:
        pixels = f"{train.features.shape[1]} pixels to train on and {test.features.shape[1]} to test with"
        raise TaskFailure(INPUT, f"{folder}: images have {pixels}, expected the same")
    return Data(train, test)


def batches(
    examples: Examples, batch_size: int, seed: int
) -> tuple[tf.data.Dataset, dict[tf.Tensor, object]]:
    """An endless dataset of shuffled batches, and what to feed when its iterator is initialised.

    Fed rather than held in the graph, which may not exceed 2 GiB.
    """
    features = tf.compat.v1.placeholder(tf.float32, examples.features.shape)
    labels = tf.compat.v1.placeholder(tf.as_dtype(examples.labels.dtype), examples.labels.shape)
    dataset = (
        tf.data.Dataset.from_tensor_slices((features, labels))
        .shuffle(min(len(examples), _SHUFFLE_BUFFER), seed=seed)
        .repeat()
        .batch(batch_size)
        .prefetch(4)
    )
    return dataset, {features: examples.features, labels: examples.labels}


def _digits_part(folder: Path, part: str) -> Examples:
    images, labels = idx.read_images_and_labels(folder, part)
    if labels.max() > 9:
        raise TaskFailure(INPUT, f"{folder}: a {part} label is {labels.max()}, expected 0 to 9")
    features = np.multiply(images.reshape(len(images), -1), 1 / 255, dtype=np.float32)
    return Examples(features, labels.astype(np.int64))
