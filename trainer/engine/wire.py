"""Variables travel to a worker, and gradients back, packed into one tensor for each ps.

Each tensor that travels costs a call, and a call takes as long as the transfer of some 100 kB. So each ps
concatenates its variables, and its pieces of cut variables, into one tensor, which the worker splits again.
Gradients travel in the same way in the other direction. A large variable travels as a tensor of its own,
because concatenating would copy it. No other part of the code depends on this: variables, their slots and
names do not change.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from trainer.engine.optimizers import Gradients
from trainer.model.models.model import Values
from trainer.model.pieces import AnyVariable, CutVariable, join_values, pieces_of, split_value

v1 = tf.compat.v1

# A variable or piece with at least this many bytes travels as a tensor of its own.
LARGE = 1 << 20


class _Pack(NamedTuple):
    """Variables or pieces of one type on one device, which travel as one tensor."""

    device: str
    pieces: list[tf.Variable]


class PackedGradients(NamedTuple):
    """A worker's gradients of variables or pieces of one type, as one flat tensor on their ps."""

    flat: tf.Tensor
    pieces: Sequence[tf.Variable]

    @property
    def device(self) -> str:
        """The device of the ps, such as "/job:ps/task:0/device:CPU:0"."""
        return str(self.pieces[0].device)

    @property
    def arrived(self) -> tf.Tensor:
        """A tensor on the ps whose value exists once the gradients have arrived there."""
        return self.flat

    @property
    def pairs(self) -> Gradients:
        """Pairs (gradient in the variable's shape, variable or piece)."""
        return self.split(self.flat)

    def split(self, flat: tf.Tensor) -> Gradients:
        """Split a flat tensor with this layout; return pairs (tensor in its shape, variable or piece)."""
        with tf.device(self.device):
            return list(zip(_unpack(flat, self.pieces), self.pieces, strict=True))


class Wire:
    """The operations by which a worker pulls variables from the ps and pushes gradients to them.

    All variables on a ps are packed, except variables that travel alone: the model itself reads only a few of
    their rows, or uses them on the ps. Packed float32 values travel as `dtype` in both directions.
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
        """Return a value for each variable, in order, in its shape and type, on the worker.

        Packed variables are read once the tensors `after` exist. A variable that is not packed is returned as
        the variable itself.
        """
        values: dict[str, tf.Tensor] = {}
        for device, pieces in self._packs:
            with tf.device(device), tf.control_dependencies(after):
                flat = _pack([piece.read_value() for piece in pieces], self._dtype)
            values.update(zip(_names(pieces), _unpack(flat, pieces), strict=True))
        with tf.name_scope("wire"):
            return [
                join_values(variable, [values[name] for name in names]) if names[0] in values else variable
                for variable in self._variables
                for names in [_names(pieces_of(variable))]
            ]

    def push(self, gradients: Sequence[tf.Tensor | tf.IndexedSlices | None]) -> Gradients:
        """Return pairs (gradient, variable or piece), given one gradient, or None, for each pulled value.

        Gradients of packed variables are moved to the variable's ps; others stay where they are. A gradient
        is None if the loss does not depend on its variable; it is left out.
        """
        pushed = self._cut(gradients)
        for sent in self._sent(pushed):
            pushed.update({piece.op.name: part for part, piece in sent.split(sent.flat)})
        return [(pushed[piece.op.name], piece) for piece in self._pieces if piece.op.name in pushed]

    def send(self, gradients: Sequence[tf.Tensor | tf.IndexedSlices | None]) -> Sequence[PackedGradients]:
        """Return the gradients as flat tensors on the ps, given one gradient, or None, for each pulled value.

        Unlike `push`, this flattens and moves gradients of variables that travel alone, too. None is left
        out.
        """
        cut = self._cut(gradients)
        sent = self._sent(cut)
        packed = {piece.op.name for each in sent for piece in each.pieces}
        for piece in self._pieces:
            if piece.op.name in cut and piece.op.name not in packed:
                with tf.device(piece.device):
                    sent.append(
                        PackedGradients(tf.reshape(tf.convert_to_tensor(cut[piece.op.name]), [-1]), [piece])
                    )
        return sent

    @property
    def _pieces(self) -> Sequence[tf.Variable]:
        return [piece for variable in self._variables for piece in pieces_of(variable)]

    def _cut(
        self, gradients: Sequence[tf.Tensor | tf.IndexedSlices | None]
    ) -> dict[str, tf.Tensor | tf.IndexedSlices]:
        """Return {name of a variable or piece: its gradient}, given a gradient, or None, for each variable.

        None is left out.
        """
        cut: dict[str, tf.Tensor | tf.IndexedSlices] = {}
        for variable, gradient in zip(self._variables, gradients, strict=True):
            if gradient is not None:
                with tf.name_scope("wire"):
                    cut.update(zip(_names(pieces_of(variable)), split_value(variable, gradient), strict=True))
        return cut

    def _sent(self, cut: Mapping[str, tf.Tensor | tf.IndexedSlices]) -> list[PackedGradients]:
        sent = []
        for device, packed in self._packs:
            pieces = [piece for piece in packed if piece.op.name in cut]
            if pieces:
                flat = _pack([tf.convert_to_tensor(cut[name]) for name in _names(pieces)], self._dtype)
                with tf.device(device), tf.name_scope("wire"):
                    # The identity puts the tensor on the ps even if the cast does
                    # nothing, so that whatever depends on it waits for the arrival there.
                    sent.append(
                        PackedGradients(tf.identity(tf.cast(flat, pieces[0].dtype.base_dtype)), pieces)
                    )
        return sent


def _names(pieces: Sequence[tf.Variable]) -> list[str]:
    return [piece.op.name for piece in pieces]


def _is_on_ps(variable: tf.Variable) -> bool:
    """Return whether a variable is on a ps; in a local run no variable is, and nothing travels."""
    return bool(tf.DeviceSpec.from_string(variable.device).job == "ps")


def _pack(tensors: Sequence[tf.Tensor], dtype: tf.DType) -> tf.Tensor:
    """Return the tensors flattened and concatenated, in order; cast to `dtype` if they are float32."""
    with tf.name_scope("wire"):
        flat = tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)
        return tf.cast(flat, dtype) if flat.dtype == tf.float32 else flat


def _unpack(flat: tf.Tensor, variables: Sequence[tf.Variable]) -> list[tf.Tensor]:
    """Split a packed tensor; return a tensor for each variable, with the variable's shape and type."""
    with tf.name_scope("wire"):
        flat = tf.cast(flat, variables[0].dtype.base_dtype)
        pieces = tf.split(flat, [variable.shape.num_elements() for variable in variables])
        return [tf.reshape(piece, variable.shape) for piece, variable in zip(pieces, variables, strict=True)]
