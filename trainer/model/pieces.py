"""Variables that are cut into pieces, so that each ps can hold a part of a large variable.

A piece is a variable "<name>/part_<number>". A piece of a table has some of its rows; any other piece is
one-dimensional, with consecutive numbers of the flattened variable. The slots that an optimizer keeps for a
piece are cut in the same way. Checkpoints and fingerprints see only whole variables, with their names and
shapes. No process has the whole value of a table.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import tensorflow as tf


@dataclass(frozen=True)
class CutVariable:
    """The pieces of a variable, in the order of its numbers; `shape` is the shape of the whole variable."""

    name: str
    shape: tf.TensorShape
    pieces: tuple[tf.Variable, ...]

    @property
    def dtype(self) -> tf.DType:
        """The type of the variable's numbers."""
        return self.pieces[0].dtype


@dataclass(frozen=True)
class TableVariable:
    """A table of `rows` rows in n pieces: row r is row r // n of piece r % n."""

    name: str
    rows: int
    pieces: tuple[tf.Variable, ...]

    @property
    def shape(self) -> tf.TensorShape:
        """The shape of the whole table; [rows] for a slot with one number for each row."""
        return tf.TensorShape([self.rows, *self.pieces[0].shape[1:]])

    @property
    def dtype(self) -> tf.DType:
        """The type of the table's numbers."""
        return self.pieces[0].dtype


InPieces: TypeAlias = CutVariable | TableVariable
AnyVariable: TypeAlias = tf.Variable | InPieces


def name_of(variable: AnyVariable) -> str:
    """Return the name of the whole variable, under which checkpoints have it."""
    return variable.name if isinstance(variable, InPieces) else str(variable.op.name)


def pieces_of(variable: AnyVariable) -> Sequence[tf.Variable]:
    """Return a variable's pieces, in order; [variable] for a variable that is not cut."""
    return variable.pieces if isinstance(variable, InPieces) else [variable]


def holder_of(variable: tf.Variable) -> str:
    """Return the task that holds a variable, by its device, such as "ps1"."""
    place = tf.DeviceSpec.from_string(variable.device)
    return f"{place.job}{place.task}"


def offsets_of(variable: tf.Variable | CutVariable) -> list[int]:
    """Return, for each piece, how many of the whole variable's numbers come before it.

    Example: pieces with 4, 4 and 2 numbers -> [0, 4, 8]
    """
    return [0, *accumulate(piece.shape.num_elements() for piece in pieces_of(variable)[:-1])]


def value_of(variable: tf.Variable | CutVariable) -> tf.Tensor:
    """Return a tensor with the whole variable's value; each piece is read on its own device.

    The pieces of a cut variable are joined on the current `tf.device`.
    """
    values = []
    for piece in pieces_of(variable):
        with tf.device(None), tf.device(piece.device):
            values.append(piece.read_value())
    return join_values(variable, values)


def join_values(variable: tf.Variable | CutVariable, values: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the whole variable's value, in its shape; `values` are the values of its pieces, in order."""
    if not isinstance(variable, CutVariable):
        return values[0]
    return tf.reshape(tf.concat(values, axis=0), variable.shape)


def split_value(
    variable: AnyVariable, value: tf.Tensor | tf.IndexedSlices
) -> list[tf.Tensor | tf.IndexedSlices]:
    """Return a one-dimensional tensor for each piece, in order, cut from the whole variable's `value`.

    Return [`value`], in its own shape, for a table or a variable that is not cut.
    """
    if not isinstance(variable, CutVariable):
        return [value]
    row = tf.reshape(tf.convert_to_tensor(value), [-1])
    parts: list[tf.Tensor] = tf.split(row, [piece.shape.num_elements() for piece in variable.pieces])
    return parts


def split_array(
    variable: tf.Variable | CutVariable, value: npt.NDArray[np.generic]
) -> list[npt.NDArray[np.generic]]:
    """Return an array for each piece, in the piece's shape, cut from the whole variable's `value`."""
    row = value.reshape(-1)
    return [
        row[start : start + piece.shape.num_elements()].reshape(piece.shape)
        for piece, start in zip(pieces_of(variable), offsets_of(variable), strict=True)
    ]


def join_pieces(variables: Iterable[tf.Variable], cut: Iterable[InPieces]) -> list[AnyVariable]:
    """Return `variables`, but with all pieces of a variable in `cut` replaced by that one variable.

    The pieces of its slots are joined in the same way, as a variable such as "tables_16/Adagrad". The order
    stays: a joined variable takes the place of its first piece.
    """
    by_name = {variable.op.name: variable for variable in variables}
    whole_of = {piece.op.name: whole for whole in cut for piece in whole.pieces}
    joined: list[AnyVariable] = []
    for name, variable in by_name.items():
        piece = name if name in whole_of else name.rpartition("/")[0]
        whole = whole_of.get(piece)
        if whole is None:
            joined.append(variable)
        elif piece == whole.pieces[0].op.name:
            slot = name[len(piece) :]
            pieces = tuple(by_name[other.op.name + slot] for other in whole.pieces)
            joined.append(replace(whole, name=whole.name + slot, pieces=pieces))
    return joined
