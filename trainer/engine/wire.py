"""How the model's variables come to a worker, and their gradients back: one tensor each way for each ps.

Each tensor that travels is a call, whose price is that of some 100 kB. So the variables of a ps, and the
pieces of those that are cut, are laid one behind the other there, and taken apart by the worker, and the
gradients the other way round. What is large travels by itself: to lay it down is to copy it. Nothing else
knows of it: variables, their slots and their names are as they would be without.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from trainer.engine.optimizers import Gradients
from trainer.model.models.model import Values
from trainer.model.pieces import AnyVariable, CutVariable, join_values, pieces_of, split_value

v1 = tf.compat.v1

# From so many bytes on a variable or a piece is a tensor of its own.
LARGE = 1 << 20


class _Pack(NamedTuple):
    """Variables of one type on one device, or pieces of some."""

    device: str
    pieces: list[tf.Variable]


class Wire:
    """What a worker pulls from the ps, and what it pushes.

    Packed are all variables on a ps but those that travel alone: these the model reads for itself, which may
    be a few rows of one, or where it lies. What is packed and float32 travels as `dtype`, both ways.
    """

    def __init__(
        self,
        variables: Sequence[AnyVariable],
        travels_alone: Callable[[tf.Variable], bool],
        dtype: tf.DType = tf.float32,
    ) -> None:
        def is_packed(variable: AnyVariable) -> bool:
            if isinstance(variable, CutVariable):
                return True
            return _is_on_ps(variable) and variable.shape.is_fully_defined() and not travels_alone(variable)

        self._variables, self._dtype = variables, dtype
        packed = [variable for variable in variables if is_packed(variable)]
        self.packs_all = len(packed) == len(variables)
        packs: dict[tuple[str, tf.DType, str], list[tf.Variable]] = defaultdict(list)
        for piece in (piece for variable in packed for piece in pieces_of(variable)):
            is_large = piece.shape.num_elements() * piece.dtype.size >= LARGE
            by_itself = piece.op.name if is_large else ""
            packs[piece.device, piece.dtype.base_dtype, by_itself].append(piece)
        self._packs = [_Pack(device, pieces) for (device, *_), pieces in packs.items()]

    def pull(self, after: Sequence[tf.Tensor] = ()) -> Values:
        """What the model computes with: of each variable that is packed its value, as it is `after` these."""
        found: dict[str, tf.Tensor] = {}
        for device, pieces in self._packs:
            with tf.device(device), tf.control_dependencies(after):
                flat = _laid([piece.read_value() for piece in pieces], self._dtype)
            found.update(zip(_names(pieces), _apart(flat, pieces), strict=True))
        with tf.name_scope("wire"):
            return [
                join_values(variable, [found[name] for name in names]) if names[0] in found else variable
                for variable in self._variables
                for names in [_names(pieces_of(variable))]
            ]

    def push(self, gradients: Sequence[tf.Tensor | tf.IndexedSlices | None]) -> Gradients:
        """The gradients of what was pulled, those of packed variables there where their variable lies.

        None is of a variable that the loss does not depend on.
        """
        found: dict[str, tf.Tensor | tf.IndexedSlices] = {}
        for variable, gradient in zip(self._variables, gradients, strict=True):
            if gradient is not None:
                with tf.name_scope("wire"):
                    found.update(
                        zip(_names(pieces_of(variable)), split_value(variable, gradient), strict=True)
                    )
        for device, packed in self._packs:
            pieces = [piece for piece in packed if piece.op.name in found]
            if not pieces:
                continue
            flat = _laid([tf.convert_to_tensor(found[name]) for name in _names(pieces)], self._dtype)
            with tf.device(device):
                found.update(zip(_names(pieces), _apart(flat, pieces), strict=True))
        every = [piece for variable in self._variables for piece in pieces_of(variable)]
        return [(found[piece.op.name], piece) for piece in every if piece.op.name in found]


def _names(pieces: Sequence[tf.Variable]) -> list[str]:
    return [piece.op.name for piece in pieces]


def _is_on_ps(variable: tf.Variable) -> bool:
    """Whether it is: in a local run all is in one process, and nothing travels."""
    return bool(tf.DeviceSpec.from_string(variable.device).job == "ps")


def _laid(tensors: Sequence[tf.Tensor], dtype: tf.DType) -> tf.Tensor:
    """These, one behind the other, and as `dtype` where they are float32."""
    with tf.name_scope("wire"):
        flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)
        return tf.cast(flat, dtype) if flat.dtype == tf.float32 else flat


def _apart(flat: tf.Tensor, variables: Sequence[tf.Variable]) -> list[tf.Tensor]:
    """The pieces of what was laid, each of the shape and the type of its variable."""
    with tf.name_scope("wire"):
        flat = tf.cast(flat, variables[0].dtype.base_dtype)
        pieces = tf.split(flat, [variable.shape.num_elements() for variable in variables])
        return [tf.reshape(piece, variable.shape) for piece, variable in zip(pieces, variables, strict=True)]
