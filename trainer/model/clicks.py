"""Generated clicks as examples to train on and to test with, and how well a model can predict them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.contract.data_files import CATEGORIES, NUMBERS
from trainer.model import scores
from trainer.model.click_truth import ClickFeatures, Integers, Truth
from trainer.model.data import AS_IT_IS, Data, Dataset, Examples
from trainer.model.random_words import permutation_keys, permute, random_words

COLUMNS = NUMBERS + CATEGORIES
_FIRST_TO_TEST = 2**48
# How many examples are computed together, so that they fit into the processor's cache; how many are computed
# in one call from TensorFlow.
_BLOCK, _CALL = 1024, 4096


class Level(NamedTuple):
    """How well a model predicts clicks: its AUC and its log loss, in nats."""

    auc: float
    log_loss: float


@dataclass(frozen=True)
class Clicks:
    """`count` generated examples: numbers `first` to `first + count - 1` of the truth.

    Features are int64 [count, 39]: 13 numbers, then 26 ids, each less than its feature's number of rows.
    Labels are float32: 1 for a click, else 0. With a `part_length`, the first `part_length` examples have ids
    of part 0, the next ones have ids of part 1, and so on. None: each id is of any part.
    """

    truth: Truth
    first: int
    count: int
    part_length: int | None = None

    def __len__(self) -> int:
        """Return the number of examples."""
        return self.count

    def examples(self, numbers: Integers) -> Examples:
        """Return the examples with these numbers, in this order; number 0 is the first example."""
        features = np.empty((len(numbers), COLUMNS), np.int64)
        labels = np.empty(len(numbers), np.float32)
        end = 0
        for block, drawn in self._draw_blocks(numbers):
            piece = slice(end, end := end + len(block))
            features[piece, :NUMBERS], features[piece, NUMBERS:] = drawn.numbers.T, drawn.ids.T
            labels[piece] = self.truth.labels(block, self.truth.logits(self.truth.terms(drawn)))
        return Examples(features, labels)

    def read(self, first: int, count: int) -> Examples:
        """Return `count` examples from number `first` on, as Source.read does."""
        return self.examples(np.arange(first, first + count) % self.count)

    def part(self, index: int, parts: int) -> "Clicks":
        """Return part `index` of `parts` consecutive parts of equal length; a remainder is in no part."""
        length = self.count // parts
        return replace(self, first=self.first + index * length, count=length)

    def dataset(
        self, batch_size: int | tf.Tensor, seed: int, workers: int, index: int, skip: int | tf.Tensor = 0
    ) -> Dataset:
        """Return (an endless dataset of batches (features, labels), {}), in the order of `order`.

        The process whose session reads the batches computes the examples in Python. The first `skip` places
        of the order are left out.
        """

        def compute(start: np.int64) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
            places = np.arange(start, start + _CALL)
            examples = self.examples(self.order(places, seed, workers, index))
            return examples.features, examples.labels

        def call(start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            features, labels = tf.numpy_function(compute, [start], (tf.int64, tf.float32))
            return tf.ensure_shape(features, [_CALL, COLUMNS]), tf.ensure_shape(labels, [_CALL])

        starts = tf.data.Dataset.range(skip, 2**62, _CALL)
        return starts.map(AS_IT_IS(call)).rebatch(batch_size), {}

    def order(self, places: Integers, seed: int, workers: int, index: int) -> Integers:
        """Return the numbers of the examples at these places in the order in which a worker trains on them.

        Place 0 is the worker's first example. Each epoch has another order.
        """
        epochs, places = np.divmod(places, len(range(index, self.count, workers)))
        keys = random_words(epochs.view(np.uint64), permutation_keys(seed, 1))
        size = np.array([self.count], np.uint64)
        return permute((places * workers + index).view(np.uint64), size, keys).view(np.int64)

    def levels(self, times: int, trained_with: int) -> dict[str, Level]:
        """Return {level: AUC and log loss} that four models reach on these examples.

        - `guess` predicts the share of clicks for each example.
        - `first_order` is the best model without pairs.
        - `seen` is the best model that only knows the ids that occur on average at least `times` times in
          `trained_with` training examples.
        - `best` is the truth itself.
        """
        truth, known = self.truth, self.truth.ranks_seen(times, trained_with)
        counts = {level: np.zeros((2, scores.BINS), np.int64) for level in ("first_order", "seen", "best")}
        for block, drawn in self._draw_blocks(np.arange(self.count)):
            terms = truth.terms(drawn)
            logits = {
                "first_order": truth.logits(terms._replace(pairs=np.zeros_like(terms.pairs))),
                "seen": truth.logits(truth.terms(drawn, known)),
                "best": truth.logits(terms),
            }
            labels = truth.labels(block, logits["best"])
            for level, level_logits in logits.items():
                counts[level] += scores.count_scores(level_logits, labels)
        levels = {level: Level(scores.auc(own), scores.log_loss(own)) for level, own in counts.items()}
        others, clicks = counts["best"].sum(axis=1) / self.count
        entropy = -(clicks * np.log(clicks) + others * np.log(others))
        return {"guess": Level(0.5, float(entropy)), **levels}

    def _draw_blocks(self, numbers: Integers) -> Iterator[tuple[Integers, ClickFeatures]]:
        """Yield (numbers of examples in the truth, their features) for each 1,024 of the `numbers`."""
        for start in range(0, len(numbers), _BLOCK):
            block = numbers[start : start + _BLOCK] + self.first
            part = None if self.part_length is None else block // self.part_length
            yield block, self.truth.draw(block, part)


def generate_clicks(truth: Truth, train: int, test: int, parts: int = 1) -> Data:
    """Return data with `train` examples to train on and `test` examples to test with, none of them twice.

    `parts` must be the number of parts of the truth. The number of examples to train on is rounded down to a
    multiple of it.
    """
    length = train // parts
    part_length = None if parts == 1 else length
    return Data(Clicks(truth, 0, length * parts, part_length), Clicks(truth, _FIRST_TO_TEST, test), parts)
