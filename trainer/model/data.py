"""Examples to train on and to test with, and endless batches of them."""

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
# For functions without a branch: else TensorFlow reads and rewrites their source in each worker that begins.
_AS_IT_IS = tf.autograph.experimental.do_not_convert


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
    """What a model learns from and what it is judged by.

    With `parts` above 1 the examples to train on are so many pieces of the same length, one after the other,
    and a worker reads the piece of its index alone. With 1 every worker reads all.
    """

    train: Examples
    test: Examples
    parts: int = 1

    def train_of(self, worker: int) -> Examples:
        """The examples that this worker trains on; nothing is copied."""
        length = len(self.train) // self.parts
        start = worker % self.parts * length
        piece = slice(start, start + length)
        return Examples(self.train.features[piece], self.train.labels[piece])


def digits(data_dir: str) -> Data:
    """Handwritten digits: flat pixels from 0 to 1 and labels from 0 to 9.

    `data_dir` is a folder of MNIST's IDX files; empty: the bundled digits. Raises TaskFailure (`input`).
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
    """What `batches` is given for a worker: a seed of its own, or the seed of all and its shard."""
    if settings.shard_data:
        return settings.seed, (workers, index)
    return settings.seed + index, None


def batches(
    examples: Examples, batch_size: int | tf.Tensor, seed: int, shard: tuple[int, int] | None = None
) -> tuple[tf.data.Dataset, dict[tf.Tensor, object]]:
    """An endless dataset of shuffled batches, and what to feed when its iterator is initialised.

    All examples are shuffled anew in each epoch; a batch may lie across two epochs, so that all are of the
    same size. `batch_size` is a number, or an int64 scalar whose value is taken when the iterator is
    initialised. With `shard` (number of workers, index of this one) the worker reads every so many-th example
    of each epoch: together the workers read each once, provided that all give the same `seed`. Raises
    TaskFailure (`input`) where there are fewer examples than workers.

    The examples are fed rather than held in the graph, which may not exceed 2 GiB. What is shuffled are
    their numbers: a batch is then gathered at once, for a fifth of the time that single examples take.
    """
    workers, index = shard or (1, 0)
    if len(examples) < workers:
        expected = f"expected as many examples to train on at least; there are {len(examples)}"
        help_ = "Set trainer_shard_data: false, or give more data"
        raise TaskFailure(INPUT, f"shard_data is true for {workers} workers, {expected}. {help_}")
    features = tf.compat.v1.placeholder(tf.float32, examples.features.shape)
    labels = tf.compat.v1.placeholder(tf.as_dtype(examples.labels.dtype), examples.labels.shape)

    def order(epoch: tf.Tensor) -> tf.Tensor:
        # Stateless, hence alike in all workers: tf.data's own shuffle also draws from the graph's seed.
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
    """The epoch in which the batch of a local step begins, its place among those from 1, and their number.

    `workers` is how many there are where each reads its own part of the examples, None where each reads all.
    """
    own = math.ceil(examples / (workers or 1))  # parts differ by one at most, this is the largest
    epochs_before = (local_step - 1) * batch_size // own
    steps_before = math.ceil(epochs_before * own / batch_size)
    return epochs_before + 1, local_step - steps_before, math.ceil(own / batch_size)


def _digits_part(folder: Path, part: str) -> Examples:
    images, labels = idx.read_images_and_labels(folder, part)
    if labels.max() > 9:
        raise TaskFailure(INPUT, f"{folder}: a {part} label is {labels.max()}, expected 0 to 9")
    features = np.multiply(images.reshape(len(images), -1), 1 / 255, dtype=np.float32)
    return Examples(features, labels.astype(np.int64))
