"""A numerical test whether the gradients that a worker applies are those of its loss.

If the parameters move by s times the gradient g, for a small s, the loss changes by s |g|^2. So the gradients
are taken where they are applied, and the loss is computed twice: a little up and a little down from the
parameters, along the gradients. The *fit* is the ratio of the measured change to the change that the
gradients predict: 1 for gradients of this loss, about 0 for noise. Gradient checkers use the same central
difference; this one takes a single direction. For a model with tables it takes two, along the variables and
along the rows: else zeros for all rows would pass beside right gradients of the variables.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from trainer.engine.local_steps import Batch, mean_of
from trainer.engine.optimizers import AnyGradient, AnyGradients
from trainer.model.data import Examples
from trainer.model.models.model import ModelContext, Values
from trainer.model.pieces import AnyVariable, TableVariable, join_values, pieces_of
from trainer.model.tables import RowGradients

# As parts of the loss: the change to aim at, and the most by which two computations at the same point may
# differ. If they differ more, the loss draws random numbers.
_CHANGE, _SAME = 0.01, 1e-4
# As parts of the parameters' norm: how far the parameters are moved. Rounding dominates a smaller move, and
# the loss is not linear over a larger one.
_LEAST_MOVE, _MOST_MOVE = 1e-4, 0.1


class WorkerLoss(NamedTuple):
    """A worker's mean loss of batches, each at its point; the gradients are multiplied by `weight`.

    `loss_at` returns the loss of a batch at another point.
    """

    context: ModelContext
    loss_at: Callable[[Values, Batch], tf.Tensor]
    points: Sequence[Values]
    batches: Sequence[Batch]
    loss: tf.Tensor
    weight: float | tf.Tensor


@dataclass(frozen=True)
class GradientFit:
    """The loss of a batch, the norm of its gradients, and their fit.

    Of the fits of variables and rows it is the one that is farther from 1. If all gradients of either are
    zero, the fit is 0. It is nan if the loss draws random numbers. Norm and fit are both nan if every
    gradient covers only some rows of a variable (tf.IndexedSlices).
    """

    loss: float
    norm: float
    fit: float

    @classmethod
    def of(cls, measured: Sequence[float]) -> "GradientFit":
        """Return the fit for these numbers.

        They are the loss, and the same loss computed again. Then, for variables, rows or each of them, the
        loss up and down the gradients, the norm of these, and the distance to the points up and down.
        """
        loss, again, *of_parts = map(float, measured)
        parts = [of_parts[first : first + 4] for first in range(0, len(of_parts), 4)]
        fits = [(up - down) / (2 * move * norm) if move * norm else 0.0 for up, down, norm, move in parts]
        fit = max(fits, key=lambda each: abs(each - 1))
        norm = math.hypot(*(norm for _, _, norm, _ in parts))
        return cls(loss, norm, fit if abs(again - loss) <= _SAME * abs(loss) else math.nan)


class GradientCheck:
    """The operations that compare a worker's loss with the gradients that are applied for it.

    They take any batches of the worker's examples. With several batches to a step (local_steps.py), all of
    the points move together along the gradients.
    """

    def __init__(
        self, variables: Sequence[AnyVariable], of_worker: WorkerLoss, applied: AnyGradients
    ) -> None:
        """Add the operations to the default graph."""
        self._fed = [tensor for batch in of_worker.batches for tensor in batch]
        gradients = {variable.op.name: gradient for gradient, variable in applied}
        with tf.device(of_worker.context.devices.worker), tf.name_scope("gradient_check"):
            slopes = [_slope(variable, gradients, of_worker.weight) for variable in variables]
            first = of_worker.points[0]
            # A variable that travels alone is read once, so that all losses have the same value of it.
            values = [
                value if slope is None else tf.convert_to_tensor(value)
                for value, slope in zip(first, slopes, strict=True)
            ]
            points = [
                [
                    read if value is unread else value
                    for read, unread, value in zip(values, first, point, strict=True)
                ]
                for point in of_worker.points
            ]

            def loss_at(moves: Sequence[tf.Tensor | None], step: float | tf.Tensor) -> tf.Tensor:
                return mean_of(
                    [
                        of_worker.loss_at(
                            [
                                value if move is None else value + tf.cast(step, move.dtype) * move
                                for value, move in zip(point, moves, strict=True)
                            ],
                            batch,
                        )
                        for point, batch in zip(points, of_worker.batches, strict=True)
                    ]
                )

            measured = [of_worker.loss, loss_at(slopes, 0.0)]
            for moves in _parts(variables, slopes):
                moved = [pair for pair in zip(values, moves, strict=True) if pair[1] is not None]
                norm = _norm([slope for _, slope in moved])
                size = _norm([value for value, _ in moved])
                move = _CHANGE * tf.abs(tf.cast(of_worker.loss, tf.float32)) / (2 * norm)
                move = tf.minimum(tf.maximum(move, _LEAST_MOVE * size), _MOST_MOVE * (1 + size))
                step = tf.math.divide_no_nan(move, norm)
                measured += [loss_at(moves, step), loss_at(moves, -step), norm, move]
            self._measured = tf.stack([tf.cast(one, tf.float32) for one in measured])

    def in_session(self, session: tf.compat.v1.Session) -> Callable[[Sequence[Examples]], GradientFit]:
        """Return a function that computes the fit on a step's batches of examples, in this session."""
        run: Callable[..., Any] = session.make_callable(self._measured, feed_list=self._fed)
        return lambda batches: GradientFit.of(
            run(*(part for batch in batches for part in (batch.features, batch.labels)))
        )


def _parts(
    variables: Sequence[AnyVariable], slopes: Sequence[tf.Tensor | None]
) -> Sequence[Sequence[tf.Tensor | None]]:
    """Return the slopes of variables and those of tables, each with None for the others."""
    are_tables = [isinstance(variable, TableVariable) for variable in variables]
    parts = [
        [slope if its == of_tables else None for slope, its in zip(slopes, are_tables, strict=True)]
        for of_tables in (False, True)
    ]
    return [part for part in parts if any(slope is not None for slope in part)] or parts[:1]


def _norm(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    squares = [tf.reduce_sum(tf.square(tf.cast(tensor, tf.float32))) for tensor in tensors]
    return tf.sqrt(tf.add_n(squares)) if squares else tf.constant(math.nan)


def _slope(
    variable: AnyVariable, gradients: Mapping[str, AnyGradient], weight: float | tf.Tensor
) -> tf.Tensor | None:
    """Return a variable's gradient, or None if it has none or only one of some rows (tf.IndexedSlices).

    Of a model's table it is the gradient of the rows that were looked up.
    """
    pieces = [gradients.get(piece.op.name) for piece in pieces_of(variable)]
    if isinstance(variable, TableVariable):
        rows = tf.concat([its.values for its in pieces if isinstance(its, RowGradients)], axis=0)
        return rows / tf.cast(weight, rows.dtype)
    if any(piece is None or isinstance(piece, tf.IndexedSlices) for piece in pieces):
        return None
    whole = join_values(variable, [tf.identity(piece) for piece in pieces])
    return whole / tf.cast(weight, whole.dtype)
