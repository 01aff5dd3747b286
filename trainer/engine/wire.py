"""How the model's variables come to a worker, and their gradients back: one tensor each way for each ps.

Each tensor that travels is a call, whose price is that of some 100 kB. So the variables of a ps are laid one
behind the other there, and taken apart by the worker, and the gradients the other way round. Nothing else
knows of it: variables, their slots and their names are as they would be without.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from trainer.engine.optimizers import Gradients
from trainer.model.models.model import Values, Variables

v1 = tf.compat.v1


class _Pack(NamedTuple):
    """Variables of one type on one device, by their places in the model's list."""

    device: str
    places: tuple[int, ...]


class Wire:
    """What a worker pulls from the ps, and what it pushes.

    Packed are all variables on a ps but those that travel alone: these the model reads for itself, which may
    be a few rows of one, or where it lies.
    """

    def __init__(self, variables: Variables, travels_alone: Callable[[tf.Variable], bool]) -> None:
        self._variables = variables
        packs: dict[tuple[str, tf.DType], list[int]] = defaultdict(list)
        for place, variable in enumerate(variables):
            if _is_on_ps(variable) and variable.shape.is_fully_defined() and not travels_alone(variable):
                packs[variable.device, variable.dtype.base_dtype].append(place)
        self._packs = [_Pack(device, tuple(places)) for (device, _), places in packs.items()]
        self.packs_all = sum(len(pack.places) for pack in self._packs) == len(variables)

    def pull(self, after: Sequence[tf.Tensor] = ()) -> Values:
        """What the model computes with: of each variable that is packed its value, as it is `after` these."""
        values = list(self._variables)
        for pack in self._packs:
            variables = [self._variables[place] for place in pack.places]
            with tf.device(pack.device), tf.control_dependencies(after):
                flat = _laid([variable.read_value() for variable in variables])
            pieces = _apart(flat, variables)
            for place, piece in zip(pack.places, pieces, strict=True):
                values[place] = piece
        return values

    def push(self, gradients: Sequence[tf.Tensor | tf.IndexedSlices | None]) -> Gradients:
        """The gradients of what was pulled, those of packed variables there where their variable lies.

        None is of a variable that the loss does not depend on.
        """
        found = dict(enumerate(gradients))
        for pack in self._packs:
            places = [place for place in pack.places if found[place] is not None]
            variables = [self._variables[place] for place in places]
            if not places:
                continue
            flat = _laid([tf.convert_to_tensor(found[place]) for place in places])
            with tf.device(pack.device):
                found.update(zip(places, _apart(flat, variables), strict=True))
        return [
            (gradient, self._variables[place]) for place, gradient in found.items() if gradient is not None
        ]


def _is_on_ps(variable: tf.Variable) -> bool:
    """Whether it is: in a local run all is in one process, and nothing travels."""
    return bool(tf.DeviceSpec.from_string(variable.device).job == "ps")


def _laid(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """These, one behind the other."""
    with tf.name_scope("wire"):
        return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)


def _apart(flat: tf.Tensor, variables: Variables) -> list[tf.Tensor]:
    """The pieces of what was laid, each of the shape of its variable."""
    with tf.name_scope("wire"):
        pieces = tf.split(flat, [variable.shape.num_elements() for variable in variables])
        return [tf.reshape(piece, variable.shape) for piece, variable in zip(pieces, variables, strict=True)]
