"""Variables that are cut into pieces, and how all but what moves them sees the whole.

A piece is a variable of its own, a row "<name>/part_<number>" of the whole's numbers, and so is what an
optimizer keeps of it. Names and shapes in checkpoints, fingerprints and models are those of the whole.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import tensorflow as tf


@dataclass(frozen=True)
class CutVariable:
    """The pieces of a variable, in the order of its numbers."""

    name: str
    shape: tf.TensorShape
    pieces: tuple[tf.Variable, ...]

    @property
    def dtype(self) -> tf.DType:
        """The type of its numbers."""
        return self.pieces[0].dtype


AnyVariable: TypeAlias = tf.Variable | CutVariable


def name_of(variable: AnyVariable) -> str:
    """Its name in checkpoints."""
    return variable.name if isinstance(variable, CutVariable) else str(variable.op.name)


def pieces_of(variable: AnyVariable) -> Sequence[tf.Variable]:
    """Its pieces; one that is not cut is its own."""
    return variable.pieces if isinstance(variable, CutVariable) else [variable]


def offsets_of(variable: AnyVariable) -> list[int]:
    """How many of the whole's numbers come before each piece."""
    return [0, *accumulate(piece.shape.num_elements() for piece in pieces_of(variable)[:-1])]


def value_of(variable: AnyVariable) -> tf.Tensor:
    """The whole value: each piece is read where it lies, and they are joined on the device in force."""
    values = []
    for piece in pieces_of(variable):
        with tf.device(None), tf.device(piece.device):
            values.append(piece.read_value())
    return joined(variable, values)


def joined(variable: AnyVariable, values: Sequence[tf.Tensor]) -> tf.Tensor:
    """A value for the whole, of one for each piece."""
    if not isinstance(variable, CutVariable):
        return values[0]
    return tf.reshape(tf.concat(values, axis=0), variable.shape)


def apart(variable: AnyVariable, value: tf.Tensor | tf.IndexedSlices) -> list[tf.Tensor | tf.IndexedSlices]:
    """A value for each piece, of one for the whole."""
    if not isinstance(variable, CutVariable):
        return [value]
    row = tf.reshape(tf.convert_to_tensor(value), [-1])
    parts: list[tf.Tensor] = tf.split(row, [piece.shape.num_elements() for piece in variable.pieces])
    return parts


def wholes(variables: Iterable[tf.Variable], cut: Iterable[CutVariable]) -> list[AnyVariable]:
    """These with the pieces of variables joined, and what an optimizer keeps of pieces likewise."""
    by_name = {variable.op.name: variable for variable in variables}
    whole_of = {piece.op.name: whole for whole in cut for piece in whole.pieces}
    found: list[AnyVariable] = []
    for name, variable in by_name.items():
        piece = name if name in whole_of else name.rpartition("/")[0]
        whole = whole_of.get(piece)
        if whole is None:
            found.append(variable)
        elif piece == whole.pieces[0].op.name:
            slot = name[len(piece) :]
            its = tuple(by_name[other.op.name + slot] for other in whole.pieces)
            found.append(CutVariable(whole.name + slot, whole.shape, its))
    return found
