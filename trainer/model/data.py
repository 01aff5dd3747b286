"""Training and test examples, and endless batches of them."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.contract.data_files import require_labels
from trainer.contract.exit_codes import INPUT
from trainer.contract.settings import TrainingSettings
from trainer.model import idx
from trainer.process.failure import TaskFailure

BUNDLED_DIGITS = Path(__file__).parent / "digits"
# Marks functions without branches, so that TensorFlow does not read and rewrite their source at each start.
AS_IT_IS = tf.autograph.experimental.do_not_convert

# A dataset of batches (features, labels), and the feeds for initialising its iterator.
Dataset = tuple[tf.data.Dataset, dict[tf.Tensor, object]]


class Source(Protocol):
    """Examples in a fixed order, which need not be in memory."""

    def __len__(self) -> int:
        """Return the number of examples."""

    def read(self, first: int, count: int) -> "Examples":
        """Return `count` examples from number `first` on, counted from 0; number 0 follows the last."""

    def part(self, index: int, parts: int) -> "Source":
        """Return part `index` of `parts` parts; no two parts have an example in common."""

    def dataset(
        self, batch_size: int | tf.Tensor, seed: int, workers: int, index: int, skip: int | tf.Tensor
    ) -> Dataset:
        """Return endless batches for worker `index` of `workers` workers, as `batches` describes them."""


@dataclass(frozen=True)
class Examples:
    """Examples in memory: features [count, ...], and one label for each example."""

    features: npt.NDArray[Any]
    labels: npt.NDArray[np.generic]

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.features)

    @property
    def feature_type(self) -> tf.DType:
        """The type of the features in a graph: integers keep their type, other numbers become float32."""
        whole = np.issubdtype(self.features.dtype, np.integer)
        return tf.as_dtype(self.features.dtype) if whole else tf.float32

    def read(self, first: int, count: int) -> "Examples":
        """Return `count` examples from number `first` on, as Source.read does."""
        places = np.arange(first, first + count) % len(self)
        return Examples(self.features[places], self.labels[places])

    def part(self, index: int, parts: int) -> "Examples":
        """Return part `index` of `parts` consecutive parts of equal length, without a copy.

        If the number of examples is no multiple of `parts`, the last examples are in no part.
        """
        length = len(self) // parts
        piece = slice(index * length, (index + 1) * length)
        return Examples(self.features[piece], self.labels[piece])

    def dataset(
        self, batch_size: int | tf.Tensor, seed: int, workers: int, index: int, skip: int | tf.Tensor = 0
    ) -> Dataset:
        """Return (an endless dataset of batches (features, labels), {placeholder: all features or labels}).

        The examples are fed and are not constants of the graph, because a graph may not exceed 2 GiB. The
        indices are shuffled, and each batch is gathered at once, which takes a fifth of the time of batching
        single examples.
        """
        features = tf.compat.v1.placeholder(self.feature_type, self.features.shape)
        labels = tf.compat.v1.placeholder(tf.as_dtype(self.labels.dtype), self.labels.shape)
        skip = tf.convert_to_tensor(skip, tf.int64)
        own = len(range(index, len(self), workers))
        first = skip // own

        def order(epoch: tf.Tensor) -> tf.Tensor:
            # A stateless shuffle is equal in all workers; tf.data's own shuffle also depends on the graph's
            # seed.
            epoch_seed = tf.stack([tf.constant(seed, tf.int64), epoch])
            numbers = tf.range(len(self), dtype=tf.int64)
            shuffled = tf.random.experimental.stateless_shuffle(numbers, seed=epoch_seed, alg="philox")
            return shuffled[index::workers][tf.where(tf.equal(epoch, first), skip % own, 0) :]

        def gather(numbers: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.gather(features, numbers), tf.gather(labels, numbers)

        epochs = tf.data.Dataset.range(first, tf.int64.max)
        dataset = epochs.map(AS_IT_IS(order)).rebatch(batch_size).map(AS_IT_IS(gather))
        return dataset, {features: self.features, labels: self.labels}


@dataclass(frozen=True)
class Data:
    """A model's training and test examples.

    If `parts` is above 1, the training examples consist of that many parts (consecutive parts of equal length
    if the examples are in memory), and each worker reads only the part with its own index. If `parts` is 1,
    every worker reads all examples.
    """

    train: Source
    test: Source
    parts: int = 1

    def train_of(self, worker: int) -> Source:
        """Return part number `worker` modulo `parts` of the training examples; all if `parts` is 1."""
        return self.train.part(worker % self.parts, self.parts)


def digits(data_dir: str) -> Data:
    """Return handwritten digits: features float32 [count, pixels] from 0 to 1, and labels int64 from 0 to 9.

    `data_dir` is a folder with MNIST's IDX files; if it is "", the bundled digits are used. Raises
    TaskFailure (`input`) if files are missing, are damaged, or do not fit together.
    """
    folder = Path(data_dir) if data_dir else BUNDLED_DIGITS
    train, test = _digits_part(folder, "train"), _digits_part(folder, "t10k")
    pixels = [part.features.shape[1] for part in (train, test)]
    if pixels[0] != pixels[1]:
        found = f"{pixels[0]} pixels to train on and {pixels[1]} to test with"
        raise TaskFailure(INPUT, f"{folder}: images have {found}, expected the same")
    return Data(train, test)


def seed_and_shard(
    settings: TrainingSettings, workers: int, index: int
) -> tuple[int, tuple[int, int] | None]:
    """Return the arguments (`seed`, `shard`) of `batches` for worker number `index` of `workers`.

    With the setting `shard_data`: (the run's seed, (`workers`, `index`)). Without it: (the run's seed +
    `index`, None).
    """
    if settings.shard_data:
        return settings.seed, (workers, index)
    return settings.seed + index, None


def batches(
    source: Source,
    batch_size: int | tf.Tensor,
    seed: int,
    shard: tuple[int, int] | None = None,
    skip: int | tf.Tensor = 0,
) -> Dataset:
    """Return (an endless dataset of shuffled batches, the feeds for initialising its iterator).

    All examples are shuffled anew in each epoch. A batch may span two epochs, so that all batches have the
    same size. Raises TaskFailure (`input`) if there are fewer examples than workers in `shard`, or none.

    Args:
        source: the examples.
        batch_size: a number, or an int64 scalar that is read when the iterator is initialised.
        seed: gives the order of the examples.
        shard: (number of workers, index of this worker). Together the workers then read each example once in
            each epoch, if all use the same `seed`. None: this worker reads all examples.
        skip: how many examples to skip, because the worker has trained on them before. Clicks in files are
            not skipped.

    """
    workers, index = shard or (1, 0)
    if len(source) < workers:
        expected = f"expected as many examples to train on at least; there are {len(source)}"
        help_ = "Set trainer_shard_data: false, or give more data"
        raise TaskFailure(INPUT, f"shard_data is true for {workers} workers, {expected}. {help_}")
    dataset, feeds = source.dataset(batch_size, seed, workers, index, skip)
    return dataset.prefetch(4), feeds


def epoch_and_batch(
    local_step: int, examples: int, batch_size: int, workers: int | None = None
) -> tuple[int, int, int]:
    """Return (the epoch of a local step, the step's batch in this epoch, the number of batches in an epoch).

    All three count from 1. `workers` is the number of workers if each reads its own shard of the examples,
    and None if each worker reads all examples.

    Example: epoch_and_batch(6, examples=100, batch_size=20) -> (2, 1, 5)
    """
    own = math.ceil(examples / (workers or 1))  # the largest shard; the sizes differ by one at most
    epochs_before = (local_step - 1) * batch_size // own
    steps_before = math.ceil(epochs_before * own / batch_size)
    return epochs_before + 1, local_step - steps_before, math.ceil(own / batch_size)


def _digits_part(folder: Path, part: str) -> Examples:
    images, labels = idx.read_images_and_labels(folder, part)
    try:
        require_labels(folder / f"{part}*", int(labels.max()))
    except ValueError as error:
        raise TaskFailure(INPUT, str(error)) from error
    features = np.multiply(images.reshape(len(images), -1), 1 / 255, dtype=np.float32)
    return Examples(features, labels.astype(np.int64))
