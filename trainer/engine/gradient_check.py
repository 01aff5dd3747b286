"""Whether the gradients that a worker pushes are those of its loss, by what the loss itself says.

Along its gradient g a loss changes by |g|^2 to a step, however the gradient was found. So the gradients are
taken where they are applied, and the loss is computed once a little up and once a little down from the
parameters. The *fit* is how far it changes between the two, as a part of what the gradients foretell: 1 for
those of this loss, about 0 for noise. It is how gradient checkers go about it, along a single direction.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from trainer.engine.optimizers import Gradients
from trainer.model.data import Examples
from trainer.model.models.model import Model, ModelContext, Values
from trainer.model.pieces import AnyVariable, join_values, pieces_of

# Of the loss: how far it is to change, and what it may differ by where it is computed again: one that differs
# more draws random numbers.
_CHANGE, _SAME = 0.01, 1e-4
# Of the parameters' norm: how far they are moved. Less is rounding, more is no slope any more.
_LEAST_MOVE, _MOST_MOVE = 1e-4, 0.1


class Lesson(NamedTuple):
    """The loss of a batch as a worker computes it at these values; its gradients are times `weight`."""

    context: ModelContext
    values: Values
    batch: tuple[tf.Tensor, tf.Tensor]
    loss: tf.Tensor
    weight: float | tf.Tensor


@dataclass(frozen=True)
class GradientFit:
    """The loss of a batch, the norm of its gradients, and how far they fit: 0 where there are none.

    `fit` is nan for a loss that draws random numbers, both for gradients that are all of some rows of tables.
    """

    loss: float
    norm: float
    fit: float

    @classmethod
    def of(cls, found: Sequence[float]) -> "GradientFit":
        """Compute it of the loss here, again, up and down, the norm, and how far up and down are."""
        loss, again, up, down, norm, move = map(float, found)
        foretold = 2 * move * norm
        fit = (up - down) / foretold if foretold else 0.0
        return cls(loss, norm, fit if abs(again - loss) <= _SAME * abs(loss) else math.nan)


class GradientCheck:
    """Checks what is `given` to the optimizer for a lesson, on any examples of its worker."""

    def __init__(
        self, model: Model, variables: Sequence[AnyVariable], lesson: Lesson, given: Gradients
    ) -> None:
        """Add it to the default graph."""
        self.batch = lesson.batch
        gradients = {variable.op.name: gradient for gradient, variable in given}
        with tf.device(lesson.context.devices.worker), tf.name_scope("gradient_check"):
            slopes = [_slope(variable, gradients, lesson.weight) for variable in variables]
            # What the model reads for itself is read once for all.
            values = [
                value if slope is None else tf.convert_to_tensor(value)
                for value, slope in zip(lesson.values, slopes, strict=True)
            ]
            moved = [pair for pair in zip(values, slopes, strict=True) if pair[1] is not None]
            norm = _norm([slope for _, slope in moved])
            size = _norm([value for value, _ in moved])
            move = _CHANGE * tf.abs(tf.cast(lesson.loss, tf.float32)) / (2 * norm)
            move = tf.minimum(tf.maximum(move, _LEAST_MOVE * size), _MOST_MOVE * (1 + size))
            step = tf.math.divide_no_nan(move, norm)

            def loss_at(steps: float) -> tf.Tensor:
                there = [
                    value if slope is None else value + tf.cast(steps * step, slope.dtype) * slope
                    for value, slope in zip(values, slopes, strict=True)
                ]
                return model.loss(lesson.context, there, *lesson.batch)

            found = [lesson.loss, loss_at(0.0), loss_at(1.0), loss_at(-1.0), norm, move]
            self._found = tf.stack([tf.cast(one, tf.float32) for one in found])

    def in_session(self, session: tf.compat.v1.Session) -> Callable[[Examples], GradientFit]:
        """What checks them on a batch of these examples."""
        run: Callable[..., Any] = session.make_callable(self._found, feed_list=list(self.batch))
        return lambda batch: GradientFit.of(run(batch.features, batch.labels))


def batch_of(examples: Examples, size: int, number: int) -> Examples:
    """So many of these examples, others for each number; some twice where there are fewer."""
    places = (np.arange(size) + number * size) % len(examples)
    return Examples(examples.features[places], examples.labels[places])


def _norm(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    squares = [tf.reduce_sum(tf.square(tf.cast(tensor, tf.float32))) for tensor in tensors]
    return tf.sqrt(tf.add_n(squares)) if squares else tf.constant(math.nan)


def _slope(
    variable: AnyVariable, gradients: Mapping[str, tf.Tensor | tf.IndexedSlices], weight: float | tf.Tensor
) -> tf.Tensor | None:
    """The gradient of a variable; None where it has none, or one of some rows only, as of a large table."""
    pieces = [gradients.get(piece.op.name) for piece in pieces_of(variable)]
    if any(piece is None or isinstance(piece, tf.IndexedSlices) for piece in pieces):
        return None
    whole = join_values(variable, [tf.identity(piece) for piece in pieces])
    return whole / tf.cast(weight, whole.dtype)
