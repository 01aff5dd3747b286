"""Integer hashing: the same scattered 64-bit number for the same number, in NumPy and in TensorFlow."""

from types import ModuleType
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

# The increment and the mixing steps of SplitMix64 (Steele, Lea and Flood, 2014).
GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))

Numbers = TypeVar("Numbers", npt.NDArray[np.uint64], tf.Tensor)


def scramble(numbers: Numbers, operations: ModuleType) -> Numbers:
    """Return an odd uint64, a hash, for each uint64; `operations` is `np`, or `tf.bitwise` for tensors."""
    mixed = (numbers + np.uint64(1)) * GAMMA
    for shift, factor in MIXING:
        shifted = operations.right_shift(mixed, np.uint64(shift))
        mixed = operations.bitwise_xor(mixed, shifted) * np.uint64(factor)
    odd: Numbers = operations.bitwise_or(mixed, np.uint64(1))
    return odd
