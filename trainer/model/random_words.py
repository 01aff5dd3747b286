"""Random words of 64 bits that depend only on a number and a key, and permutations made of them.

All is integer arithmetic, so that every machine computes the same.
"""

import numpy as np
import numpy.typing as npt

from trainer.model.scrambling import GAMMA, MIXING

Words = npt.NDArray[np.uint64]

*_MULTIPLIED, (_LAST_SHIFT, _) = MIXING
(_, _FIRST), (_, _SECOND) = _MULTIPLIED
_ONE = 0x3FF0000000000000  # the bits of 1.0
_ROUNDS = 4


def random_words(numbers: Words, keys: Words) -> Words:
    """Return a random word, uint64, for each pair (number, key); both arrays are broadcast to one shape."""
    return _mixed(numbers * GAMMA + keys)


def keys_of(seed: int, count: int) -> Words:
    """Return `count` keys, uint64 [count], for a seed of at least 0, which is taken modulo 2^64."""
    start = np.array([seed % 2**64], np.uint64)
    return random_words(np.arange(count, dtype=np.uint64), _mixed(start))


def uniform(words: Words) -> npt.NDArray[np.float64]:
    """Return for each word a float64 from 1 (included) to 2 (excluded), made of its upper 52 bits."""
    bits: Words = words >> np.uint64(12) | np.uint64(_ONE)
    return bits.view(np.float64)


def permute(values: Words, sizes: Words, keys: Words) -> Words:
    """Return the place of each value in a fixed permutation of the numbers 0 to size - 1.

    `sizes`, and each of the `keys` [_ROUNDS, ...], are broadcast to the values, which must be below their
    size. This is a Feistel network over the next power of two; a place that is not below the size is permuted
    again until it is.
    """
    bits = np.frexp((sizes - np.uint64(1)).astype(np.float64))[1].astype(np.uint64)
    low = bits >> np.uint64(1)
    masks = [(np.uint64(1) << count) - np.uint64(1) for count in (bits - low, low)]
    halves = [values >> low, values & masks[1]]
    for number, key in enumerate(keys):
        mixed = halves[1 - number % 2] ^ key
        mixed *= np.uint64(_FIRST)
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(_SECOND)
        halves[number % 2] ^= mixed >> np.uint64(32) & masks[number % 2]
    places: Words = halves[0] << low | halves[1]
    outside = np.nonzero(places >= sizes)
    if outside[0].size:
        size, *own = [np.broadcast_to(each, places.shape)[outside] for each in (sizes, *keys)]
        places[outside] = permute(places[outside], size, np.stack(own))
    return places


def permutation_keys(seed: int, count: int) -> Words:
    """Return the keys of `count` permutations: uint64 [_ROUNDS, count]."""
    return keys_of(seed, _ROUNDS * count).reshape(_ROUNDS, count)


def _mixed(words: Words) -> Words:
    """Return SplitMix64's hash of each word; the array `words` is changed and returned."""
    for shift, factor in _MULTIPLIED:
        words ^= words >> np.uint64(shift)
        words *= np.uint64(factor)
    words ^= words >> np.uint64(_LAST_SHIFT)
    return words
