"""Training and test examples, and endless batches of them."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.contract.exit_codes import INPUT
from trainer.contract.settings import TrainingSettings
from trainer.model import idx
from trainer.process.failure import TaskFailure

BUNDLED_DIGITS = Path(__file__).parent / "digits"
# The functions below have no branches; else TensorFlow would read and rewrite their source at each start.
_AS_IT_IS = tf.autograph.experimental.do_not_convert


@dataclass(frozen=True)
class Examples:
    """Features [count, ...] as float32, and one label for each example."""

    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.generic]

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.features)


@dataclass(frozen=True)
class Data:
    """A model's training and test examples.

    If `parts` is above 1, the training examples consist of that many consecutive parts of equal length, and
    each worker reads only the part with its own index. If it is 1, every worker reads all examples.
    """

    train: Examples
    test: Examples
    parts: int = 1

    def train_of(self, worker: int) -> Examples:
        """Return the examples that this worker trains on, as views without a copy."""
        length = len(self.train) // self.parts
        start = worker % self.parts * length
        piece = slice(start, start + length)
        return Examples(self.train.features[piece], self.train.labels[piece])


def digits(data_dir: str) -> Data:
    """Return handwritten digits: flat pixels from 0 to 1, and labels from 0 to 9.

    `data_dir` is a folder with MNIST's IDX files; the bundled digits are used if it is empty. Raises
    TaskFailure (`input`).
    """
    folder = Path(data_dir) if data_dir else BUNDLED_DIGITS
    data = Data(_digits_part(folder, "train"), _digits_part(folder, "t10k"))
    train, test = data.train.features.shape[1], data.test.features.shape[1]
    if train != test:
        pixels = f"{train} pixels to train on and {test} to test with"
        raise TaskFailure(INPUT, f"{folder}: images have {pixels}, expected the same")
    return data


def seed_and_shard(
    settings: TrainingSettings, workers: int, index: int
) -> tuple[int, tuple[int, int] | None]:
    """Return a worker's `seed` and `shard` for `batches`.

    With `shard_data` all workers share one seed and each has its shard; else each has its own seed.
    """
    if settings.shard_data:
        return settings.seed, (workers, index)
    return settings.seed + index, None


def batches(
    examples: Examples, batch_size: int | tf.Tensor, seed: int, shard: tuple[int, int] | None = None
) -> tuple[tf.data.Dataset, dict[tf.Tensor, object]]:
    """Return an endless dataset of shuffled batches, and the feeds for initialising its iterator.

    All examples are shuffled anew in each epoch. A batch may span two epochs, so that all batches have the
    same size. `batch_size` is a number, or an int64 scalar that is read when the iterator is initialised.
    With `shard` (number of workers, index of this one) the worker reads every n-th example of each epoch,
    for n workers: together they read each example once, provided that all use the same `seed`. Raises
    TaskFailure (`input`) if there are fewer examples than workers.

    The examples are fed and are not constants of the graph, which may not exceed 2 GiB. The indices are
    shuffled, and each batch is gathered at once: that takes a fifth of the time of batching single examples.
    """
    workers, index = shard or (1, 0)
    if len(examples) < workers:
        expected = f"expected as many examples to train on at least; there are {len(examples)}"
        help_ = "Set trainer_shard_data: false, or give more data"
        raise TaskFailure(INPUT, f"shard_data is true for {workers} workers, {expected}. {help_}")
    features = tf.compat.v1.placeholder(tf.float32, examples.features.shape)
    labels = tf.compat.v1.placeholder(tf.as_dtype(examples.labels.dtype), examples.labels.shape)

    def order(epoch: tf.Tensor) -> tf.Tensor:
        # A stateless shuffle is equal in all workers; tf.data's own also depends on the graph's seed.
        epoch_seed = tf.stack([tf.constant(seed, tf.int64), epoch])
        numbers = tf.range(len(examples), dtype=tf.int64)
        shuffled = tf.random.experimental.stateless_shuffle(numbers, seed=epoch_seed, alg="philox")
        return shuffled[index::workers]

    def gather(numbers: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(features, numbers), tf.gather(labels, numbers)

    epochs = tf.data.Dataset.range(tf.int64.max)
    dataset = epochs.map(_AS_IT_IS(order)).rebatch(batch_size).map(_AS_IT_IS(gather)).prefetch(4)
    return dataset, {features: examples.features, labels: examples.labels}


def epoch_and_batch(
    local_step: int, examples: int, batch_size: int, workers: int | None = None
) -> tuple[int, int, int]:
    """Return the epoch of a local step, its batch in that epoch, and the number of batches in an epoch.

    All are counted from 1. `workers` is the number of workers if each reads its own shard of the examples,
    and None if each reads all of them.
    """
    own = math.ceil(examples / (workers or 1))  # the largest shard; the sizes differ by one at most
    epochs_before = (local_step - 1) * batch_size // own
    steps_before = math.ceil(epochs_before * own / batch_size)
    return epochs_before + 1, local_step - steps_before, math.ceil(own / batch_size)


def _digits_part(folder: Path, part: str) -> Examples:
    images, labels = idx.read_images_and_labels(folder, part)
    if labels.max() > 9:
        raise TaskFailure(INPUT, f"{folder}: a {part} label is {labels.max()}, expected 0 to 9")
    features = np.multiply(images.reshape(len(images), -1), 1 / 255, dtype=np.float32)
    return Examples(features, labels.astype(np.int64))
