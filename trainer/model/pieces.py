"""Variables that are cut into pieces, so that each ps can hold a part of a large one.

A piece is a one-dimensional variable "<name>/part_<number>" with some of the whole variable's numbers. The
slots that an optimizer keeps for a piece are cut in the same way. Checkpoints, fingerprints and models see
only whole variables, with their names and shapes.
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
        """The type of the variable's numbers."""
        return self.pieces[0].dtype


AnyVariable: TypeAlias = tf.Variable | CutVariable


def name_of(variable: AnyVariable) -> str:
    """Return a variable's name in checkpoints."""
    return variable.name if isinstance(variable, CutVariable) else str(variable.op.name)


def pieces_of(variable: AnyVariable) -> Sequence[tf.Variable]:
    """Return a variable's pieces; a variable that is not cut is its own only piece."""
    return variable.pieces if isinstance(variable, CutVariable) else [variable]


def offsets_of(variable: AnyVariable) -> list[int]:
    """Return, for each piece, how many of the whole variable's numbers come before it."""
    return [0, *accumulate(piece.shape.num_elements() for piece in pieces_of(variable)[:-1])]


def value_of(variable: AnyVariable) -> tf.Tensor:
    """Return the whole value: each piece is read on its own device, and joined on the device in force."""
    values = []
    for piece in pieces_of(variable):
        with tf.device(None), tf.device(piece.device):
            values.append(piece.read_value())
    return join_values(variable, values)


def join_values(variable: AnyVariable, values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the whole variable's value, given one value for each piece."""
    if not isinstance(variable, CutVariable):
        return values[0]
    return tf.reshape(tf.concat(values, axis=0), variable.shape)


def split_value(
    variable: AnyVariable, value: tf.Tensor | tf.IndexedSlices
) -> list[tf.Tensor | tf.IndexedSlices]:
    """Return one value for each piece, given the whole variable's value."""
    if not isinstance(variable, CutVariable):
        return [value]
    row = tf.reshape(tf.convert_to_tensor(value), [-1])
    parts: list[tf.Tensor] = tf.split(row, [piece.shape.num_elements() for piece in variable.pieces])
    return parts


def join_pieces(variables: Iterable[tf.Variable], cut: Iterable[CutVariable]) -> list[AnyVariable]:
    """Return the variables with the pieces of each cut variable, and their optimizer slots, joined."""
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
