"""A numerical test whether the gradients that a worker applies are the gradients of its loss.

If the parameters move by `s` times the gradient `g`, for a small `s`, the loss changes by `s |g|^2`. So the
gradients are taken where they are applied, and the loss is computed at two points: a little up and a little
down from the parameters, along the gradients. The *fit* is the measured change divided by the change that the
gradients predict: 1 for the gradients of this loss, about 0 for noise. Gradient checkers use the same central
difference, for each parameter; this test uses one direction. A model with tables has two directions, one
along the variables and one along the rows. Otherwise right gradients of the variables would hide gradients of
the rows that are all zero.
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
from trainer.model.tables.lookup import RowGradients

# Both relative to the loss: the change of the loss to aim at, and how far two computations at the same point
# may differ. If they differ more, the loss draws random numbers.
_CHANGE, _SAME = 0.01, 1e-4
# Both relative to the norm of the parameters: the shortest and the longest move. Rounding dominates a shorter
# move, and the loss is not linear over a longer move.
_LEAST_MOVE, _MOST_MOVE = 1e-4, 0.1


class WorkerLoss(NamedTuple):
    """The loss of one step of a worker, and what is needed to compute the loss with other parameters.

    Attributes:
        context: the context of the model's functions.
        loss_at: takes parameters and a batch, and returns the loss of the batch with these parameters.
        points: for each batch, the parameters with which its loss was computed.
        batches: the batches of the step.
        loss: the mean of the batches' losses.
        weight: the factor by which the applied gradients were multiplied.

    """

    context: ModelContext
    loss_at: Callable[[Values, Batch], tf.Tensor]
    points: Sequence[Values]
    batches: Sequence[Batch]
    loss: tf.Tensor
    weight: float | tf.Tensor


@dataclass(frozen=True)
class GradientFit:
    """The loss of a step's batches, the norm of its gradients, and the fit of the gradients to the loss.

    The fit is 1 for right gradients, about 0 for noise, and 0 if all gradients are zero. With tables there
    are two fits, for variables and for rows; `fit` is the one farther from 1. `fit` is nan if the loss draws
    random numbers. `norm` and `fit` are both nan if every gradient covers only some rows of a variable
    (tf.IndexedSlices).
    """

    loss: float
    norm: float
    fit: float

    @classmethod
    def from_values(cls, measured: Sequence[float]) -> "GradientFit":
        """Return the fit for the numbers that `GradientCheck` computed, `measured`.

        They are the loss, and the same loss computed a second time; then four numbers for the variables, for
        the rows, or for each of both: the loss up the gradients, the loss down the gradients, the norm of the
        gradients, and the length of the move up or down.
        """
        loss, again, *of_parts = map(float, measured)
        parts = [of_parts[first : first + 4] for first in range(0, len(of_parts), 4)]
        fits = [(up - down) / (2 * move * norm) if move * norm else 0.0 for up, down, norm, move in parts]
        fit = max(fits, key=lambda each: abs(each - 1))
        norm = math.hypot(*(norm for _, _, norm, _ in parts))
        return cls(loss, norm, fit if abs(again - loss) <= _SAME * abs(loss) else math.nan)


class GradientCheck:
    """The operations that compare a worker's loss with the gradients that are applied for the loss.

    They work with any batches of the worker's examples. If a step has several batches (local_steps.py), the
    points of all batches move together along the gradients.
    """

    def __init__(
        self, variables: Sequence[AnyVariable], worker_loss: WorkerLoss, applied: AnyGradients
    ) -> None:
        """Add the operations to the default graph; `applied` are pairs (applied gradient, variable)."""
        self._fed = [tensor for batch in worker_loss.batches for tensor in batch]
        gradients = {variable.op.name: gradient for gradient, variable in applied}
        with tf.device(worker_loss.context.devices.worker), tf.name_scope("gradient_check"):
            slopes = [_slope(variable, gradients, worker_loss.weight) for variable in variables]
            first = worker_loss.points[0]
            # A variable that travels alone is read once, so that all losses use the same value.
            values = [
                value if slope is None else tf.convert_to_tensor(value)
                for value, slope in zip(first, slopes, strict=True)
            ]
            points = [
                [
                    read if value is unread else value
                    for read, unread, value in zip(values, first, point, strict=True)
                ]
                for point in worker_loss.points
            ]

            def loss_at(moves: Sequence[tf.Tensor | None], step: float | tf.Tensor) -> tf.Tensor:
                return mean_of(
                    [
                        worker_loss.loss_at(
                            [
                                value if move is None else value + tf.cast(step, move.dtype) * move
                                for value, move in zip(point, moves, strict=True)
                            ],
                            batch,
                        )
                        for point, batch in zip(points, worker_loss.batches, strict=True)
                    ]
                )

            measured = [worker_loss.loss, loss_at(slopes, 0.0)]
            for moves in _parts(variables, slopes):
                moved = [pair for pair in zip(values, moves, strict=True) if pair[1] is not None]
                norm = _norm([slope for _, slope in moved])
                size = _norm([value for value, _ in moved])
                move = _CHANGE * tf.abs(tf.cast(worker_loss.loss, tf.float32)) / (2 * norm)
                move = tf.minimum(tf.maximum(move, _LEAST_MOVE * size), _MOST_MOVE * (1 + size))
                step = tf.math.divide_no_nan(move, norm)
                measured += [loss_at(moves, step), loss_at(moves, -step), norm, move]
            self._measured = tf.stack([tf.cast(one, tf.float32) for one in measured])

    def in_session(self, session: tf.compat.v1.Session) -> Callable[[Sequence[Examples]], GradientFit]:
        """Return a function that takes the batches of a step, and returns their GradientFit.

        The function runs in `session`, and changes no variable.
        """
        run: Callable[..., Any] = session.make_callable(self._measured, feed_list=self._fed)
        return lambda batches: GradientFit.from_values(
            run(*(part for batch in batches for part in (batch.features, batch.labels)))
        )


def _parts(
    variables: Sequence[AnyVariable], slopes: Sequence[tf.Tensor | None]
) -> Sequence[Sequence[tf.Tensor | None]]:
    """Return one or two lists like `slopes`: one with the variables' slopes, one with the tables' slopes.

    Other slopes are None. A list with None alone is left out; if both are so, the first stays.
    """
    are_tables = [isinstance(variable, TableVariable) for variable in variables]
    parts = [
        [slope if is_table == tables else None for slope, is_table in zip(slopes, are_tables, strict=True)]
        for tables in (False, True)
    ]
    return [part for part in parts if any(slope is not None for slope in part)] or parts[:1]


def _norm(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    squares = [tf.reduce_sum(tf.square(tf.cast(tensor, tf.float32))) for tensor in tensors]
    return tf.sqrt(tf.add_n(squares)) if squares else tf.constant(math.nan)


def _slope(
    variable: AnyVariable, gradients: Mapping[str, AnyGradient], weight: float | tf.Tensor
) -> tf.Tensor | None:
    """Return the gradient of a variable divided by `weight`; for a table, of the rows that were looked up.

    Return None if the variable has no gradient, or only a gradient of some rows (tf.IndexedSlices).
    """
    pieces = [gradients.get(piece.op.name) for piece in pieces_of(variable)]
    if isinstance(variable, TableVariable):
        rows = tf.concat([piece.values for piece in pieces if isinstance(piece, RowGradients)], axis=0)
        return rows / tf.cast(weight, rows.dtype)
    if any(piece is None or isinstance(piece, tf.IndexedSlices) for piece in pieces):
        return None
    whole = join_values(variable, [tf.identity(piece) for piece in pieces])
    return whole / tf.cast(weight, whole.dtype)
