"""Generated clicks in the shape of Criteo's data: what an example is, and the best possible model of them.

An example has 13 numbers and 26 ids, of which some are missing, and a label: 1 for a click. It depends only
on the seed and on its own number. Everything up to the logit is integers, or float64 with +, -, * and / only,
so that every machine makes the same examples. Only the last of the 53 bits of the sigmoid may differ by
machine.

The ids of a feature have ranks, drawn by Zipf's law; a permutation hides an id's rank. Each id has two
weights, hashed from the id. The logit of a click is the sum of three terms: all ids' first weights (the first
order); for some pairs of features, the products of the two ids' second weights; logarithms of the numbers.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trainer.contract.data_files import CATEGORIES, NUMBERS
from trainer.model.random_words import Words, keys_of, permutation_keys, permute, random_words, uniform

# What stands for a missing number, and for a missing id: row 0 of each feature.
MISSING_NUMBER, MISSING_ID = -(2**31), 0
# With these, clicks are about as hard to predict as Criteo's, by the results published for Criteo's clicks.
LOGIT_DEVIATION, CLICK_SHARE = 1.4, 0.256

# The share of missing values of each column, in 1/4096. The shares differ by column as in Criteo's data, but
# they were not counted there.
_NUMBERS_MISSING = np.array((1840, 0, 860, 900, 120, 900, 160, 0, 160, 1840, 160, 3110, 900))
_IDS_MISSING = np.zeros(CATEGORIES, np.int64)
_IDS_MISSING[[2, 3, 11, 15, 20, 23]] = 140
_IDS_MISSING[[5, 18, 19, 21, 24, 25]] = (490, 1800, 1800, 3120, 1800, 1800)
# For each column, the bits of its largest number, and its smallest number.
_BITS = np.array((6, 11, 12, 6, 21, 13, 9, 9, 12, 3, 6, 4, 9))
_LEAST = np.array((0, -3, *[0] * 11))
# What a missing number adds to its term of the logit, in units of 2^-16.
_MISSING_ADDS = np.array((2**17, *[0] * 12))
# Features whose ids act together.
_PAIRS = np.array(((0, 5), (1, 13), (4, 16), (7, 22), (12, 21), (18, 24))).T
# The exponent of Zipf's law is 1 + 1/5 for every third feature, as for ids of users; 1 + 1/20 for the others.
_POWERS = [5 if feature % 3 == 2 else 20 for feature in range(CATEGORIES)]
# The shares of first order, pairs and numbers in the variance of the logit.
_SHARES = (0.6, 0.2, 0.2)

# The numbers of the examples from which the scales are computed.
_CALIBRATION = np.arange(2**49, 2**49 + 2**16)
_HALF = np.uint64(0xFFFF)
_MEAN_WORD = 0x0000FFFF0000FFFF  # the word of an id whose two weights are 0

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class ClickFeatures(NamedTuple):
    """The features of examples: numbers [13, count], ids [26, count], and the ids' ranks [26, count]."""

    numbers: Integers
    ids: Words
    ranks: Words


class Terms(NamedTuple):
    """The three terms of the examples' logits before they are scaled, each [count]."""

    first_order: Integers
    pairs: Integers
    numbers: Integers


class Truth:
    """The best possible model of generated clicks.

    `rows` are the numbers of rows of the features: one row for a missing id, and one for each id. With
    several `parts`, each id belongs to one part, except in features with fewer ids than parts.
    """

    def __init__(self, rows: Sequence[int], seed: int, parts: int = 1) -> None:
        ids = [count - 1 for count in rows]
        split = [parts if count >= parts else 1 for count in ids]
        ids_of_a_part = [count // share for count, share in zip(ids, split, strict=True)]
        self._parts, self._ids_of_a_part = _column(split), _column(ids_of_a_part)
        self._ids = self._parts * self._ids_of_a_part
        self._least = np.array(
            [[_root(count + 1, power)] for count, power in zip(ids_of_a_part, _POWERS, strict=True)]
        )
        words = keys_of(seed, 2 * (NUMBERS + CATEGORIES) + 2)[:, None]
        sizes = (NUMBERS, CATEGORIES, CATEGORIES, NUMBERS, 1, 1)
        keys = np.split(words, np.cumsum(sizes)[:-1])
        self._number_keys, self._id_keys, self._weight_keys, slopes, self._label_key, others = keys
        self._hiding_keys = permutation_keys(int(others[0, 0]), CATEGORIES)[:, :, None]
        self._slopes = (slopes >> np.uint64(47)).view(np.int64) - 2**16  # -1 to 1, in units of 2^-16
        self._second_means = self._number_means = np.zeros((1, 1), np.int64)
        self._scales, self._bias = (1.0, 1.0, 1.0), 0.0
        self._calibrate()

    def draw(self, numbers: Integers, part: Integers | None = None) -> ClickFeatures:
        """Return the features of the examples with these numbers, int64 [count].

        `part` is int64 [count]: all ids of an example belong to its part. None draws a part for each id.
        """
        examples = numbers.view(np.uint64)
        words = random_words(examples, self._number_keys)
        # 2**x for a logarithm x that is the sum of two uniform numbers; linear between whole powers of two.
        exponents = (_quarter(words, 0) + _quarter(words, 1)) * _column(_BITS)
        powers = ((exponents & np.uint64(2**17 - 1)) + np.uint64(2**17)) << (exponents >> np.uint64(17))
        values = (powers >> np.uint64(17)).view(np.int64) + (_LEAST[:, None] - 1)
        values[(words >> np.uint64(52)) < _column(_NUMBERS_MISSING)] = MISSING_NUMBER

        words = random_words(examples, self._id_keys)
        present = (words & np.uint64(0xFFF)) >= _column(_IDS_MISSING)
        ranks = self._ranks(words)
        if (self._parts > 1).any():
            chosen = random_words(words, self._id_keys) if part is None else part.view(np.uint64)
            ranks = ranks * self._parts + chosen % self._parts
        ids = permute(ranks, self._ids, self._hiding_keys) + np.uint64(1)
        ids *= present
        return ClickFeatures(values, ids, ranks)

    def terms(self, drawn: ClickFeatures, known: Words | None = None) -> Terms:
        """Return the three terms of the logits, before scaling.

        `known`, [26, 1], is for a model that knows only the ids of each feature whose rank is below `known`:
        the others get both weights 0, the mean over all ids. None: all ids have their own weights.
        """
        words = random_words(drawn.ids, self._weight_keys)
        if known is not None:
            words[drawn.ranks >= known] = _MEAN_WORD
        present = drawn.ids != MISSING_ID
        first = (_weights(words, 0) * present).sum(axis=0)
        second = (_weights(words, 2) - self._second_means) * present
        missing = drawn.numbers == MISSING_NUMBER
        sloped = ((_logarithms(drawn.numbers) - self._number_means) * self._slopes) >> 16
        numbers = np.where(missing, _MISSING_ADDS[:, None], sloped).sum(axis=0)
        return Terms(first, (second[_PAIRS[0]] * second[_PAIRS[1]]).sum(axis=0), numbers)

    def logits(self, terms: Terms) -> Floats:
        """Return the logits of clicks, [count]: the sum of the terms, each scaled, and of the bias."""
        first, pairs, numbers = (scale * term for scale, term in zip(self._scales, terms, strict=True))
        logits: Floats = first + pairs + numbers + self._bias
        return logits

    def labels(self, numbers: Integers, logits: Floats) -> npt.NDArray[np.float32]:
        """Return labels [count], 1 for a click, else 0, drawn with the probabilities sigmoid(`logits`).

        The same number and logit always give the same label.
        """
        words = random_words(numbers.view(np.uint64), self._label_key[0])
        return (uniform(words) - 1 < _sigmoid(logits)).astype(np.float32)

    def ranks_seen(self, times: int, examples: int) -> Words:
        """Return, for each category, how many ids occur at least `times` times in `examples` examples.

        The result is uint64 [26, 1]. An id counts by its mean number of occurrences, so the counted ids are
        the ids with the lowest ranks.
        """
        of_a_part = examples / self._parts * (1 - _IDS_MISSING[:, None] / 4096)
        share = times / of_a_part * (1 - self._least)
        counts = self._ids_of_a_part[:, 0].tolist()
        seen = [
            bisect_left(range(count), -needed, key=partial(_less_drawn, power))
            for count, power, needed in zip(counts, _POWERS, share[:, 0].tolist(), strict=True)
        ]
        return _column(seen) * self._parts

    def _ranks(self, words: Words) -> Words:
        """Return a rank within a part for each random word; rank 0 is the most frequent."""
        places = (2 - self._least) - uniform(words) * (1 - self._least)  # from `least` to 1
        powers = places * places
        powers *= powers
        powers *= places
        for first in (0, 1):
            flat = powers[first::3]
            flat *= flat
            flat *= flat
        ranks: Integers = (1 / powers).astype(np.int64) - 1
        np.clip(ranks, 0, self._ids_of_a_part.view(np.int64) - 1, out=ranks)
        return ranks.view(np.uint64)

    def _calibrate(self) -> None:
        """Set means, scales and bias, so that logits have LOGIT_DEVIATION, and clicks have CLICK_SHARE."""
        drawn = self.draw(_CALIBRATION)
        weights = _weights(random_words(drawn.ids, self._weight_keys), 2)
        self._second_means = _means(weights, drawn.ids != MISSING_ID)
        self._number_means = _means(_logarithms(drawn.numbers), drawn.numbers != MISSING_NUMBER)
        terms = self.terms(drawn)
        first, pairs, numbers = (
            math.sqrt(share) / _deviation(term) for share, term in zip(_SHARES, terms, strict=True)
        )
        self._scales = (first, pairs, numbers)
        scale = LOGIT_DEVIATION / _deviation(self.logits(terms))
        self._scales = (first * scale, pairs * scale, numbers * scale)
        logits = self.logits(terms)
        # The bias is a multiple of 2^-20, so that the last bit of the sigmoid does not change it.
        units = range(-(2**24), 2**24)
        place = bisect_left(units, CLICK_SHARE, key=lambda unit: _sigmoid(logits + unit / 2**20).mean())
        self._bias = units[place] / 2**20


def _less_drawn(power: int, rank: int) -> float:
    """Return minus the probability of a rank, multiplied by a factor that is the same for all ranks.

    The result rises with the rank, as `bisect_left` needs.
    """
    place = -1 / power
    return float((rank + 2) ** place - (rank + 1) ** place)


def _column(values: npt.ArrayLike) -> Words:
    return np.asarray(values, np.uint64)[:, None]


def _quarter(words: Words, number: int) -> Words:
    """Return 16 bits of each word: quarter 0 has the lowest bits, quarter 3 the highest."""
    return words >> np.uint64(16 * number) & _HALF


def _weights(words: Words, quarter: int) -> Integers:
    """Return a weight for each word: the sum of quarters `quarter` and `quarter` + 1, minus its mean."""
    return (_quarter(words, quarter) + _quarter(words, quarter + 1)).view(np.int64) - 0xFFFF


def _logarithms(numbers: Integers) -> Integers:
    """Return log2(number - least + 1) for each number, in units of 2^-16; linear between powers of two.

    `least` is the smallest number of the column.
    """
    mantissas, exponents = np.frexp((numbers - _LEAST[:, None] + 1).astype(np.float64))
    logarithms: Floats = exponents + 2 * mantissas - 2
    return (logarithms * 2**16).astype(np.int64)


def _means(values: Integers, present: npt.NDArray[np.bool_]) -> Integers:
    """Return the mean of each row's values where `present` is true, rounded down: [rows, 1].

    The mean of a row without such values is 0.
    """
    means: Integers = (values * present).sum(axis=1) // np.maximum(present.sum(axis=1), 1)
    return means[:, None]


def _deviation(values: Integers | Floats) -> float:
    """Return the standard deviation; the sums are exact, so that the order of `values` does not matter."""
    mean = math.fsum(values.tolist()) / len(values)
    return math.sqrt(math.fsum(((values - mean) ** 2).tolist()) / len(values))


def _root(number: int, power: int) -> float:
    """Return number^(-1/power), rounded down to 53 bits after the binary point."""
    return (bisect_left(range(2**53), 2 ** (53 * power), key=lambda root: root**power * number) - 1) / 2**53


def _sigmoid(logits: Floats) -> Floats:
    return 1 / (1 + np.exp(-logits))
