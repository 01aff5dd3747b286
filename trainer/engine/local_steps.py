"""Local steps: a worker computes several batches on its copy of the parameters before it pushes once.

This is Downpour SGD (Dean et al. 2012, "Large Scale Distributed Deep Networks"): after each batch the worker
moves its copy along the batch's gradients, and the ps get one gradient for all batches. The copy lives only
during one call into TensorFlow, so there is nothing to save.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import tensorflow as tf

from trainer.engine.bias_gradients import bias_gradients_first
from trainer.engine.optimizers import Gradient
from trainer.model.models.model import Values

v1 = tf.compat.v1

Batch: TypeAlias = tuple[tf.Tensor, tf.Tensor]  # features and labels


class LocalSteps(NamedTuple):
    """The tensors of a worker's batches between two pushes.

    Attributes:
        points: for each batch, the parameters with which its loss is computed.
        loss: the mean loss of the batches.
        gradients: for each parameter, the mean of its gradients, times `weight`; None if it has none.
        last: for each parameter, the last batch's gradient, times `weight`, divided by the number of batches;
            None if it has none.

    """

    points: Sequence[Values]
    loss: tf.Tensor
    gradients: Sequence[Gradient | None]
    last: Sequence[Gradient | None]


def take_local_steps(
    loss_of: Callable[[Values, Batch], tf.Tensor],
    move: Callable[[Values, Sequence[Gradient | None]], Values],
    values: Values,
    batches: Sequence[Batch],
    weight: float | tf.Tensor,
) -> LocalSteps:
    """Return the local steps for `batches`, each of which moves the parameters for the next batch.

    Args:
        loss_of: takes parameters and a batch, and returns the batch's loss.
        move: takes parameters and the gradients of one batch, and returns the parameters after a step along
            the gradients. The gradients are multiplied by `weight` and divided by the number of batches.
        values: the parameters for the first batch.
        batches: at least one batch.
        weight: the factor of the gradients in the result.

    """
    points, losses, every = [values], list[tf.Tensor](), list[Sequence[Gradient | None]]()
    part = weight if len(batches) == 1 else weight / len(batches)
    for batch in batches:
        if every:
            points.append(move(points[-1], every[-1]))
        with bias_gradients_first():
            losses.append(loss_of(points[-1], batch))
        every.append(v1.gradients(losses[-1], points[-1], tf.cast(part, losses[-1].dtype)))
    return LocalSteps(
        points, mean_of(losses), [_sum(gradients) for gradients in zip(*every, strict=True)], every[-1]
    )


def mean_of(losses: Sequence[tf.Tensor]) -> tf.Tensor:
    """Return the mean of the losses, which must not be empty."""
    return losses[0] if len(losses) == 1 else tf.add_n(losses) / len(losses)


def _sum(gradients: Sequence[Gradient | None]) -> Gradient | None:
    """Return the sum of the gradients that are not None; None if all are None.

    If these are all gradients of some rows (tf.IndexedSlices), so is the sum; a row may then appear several
    times.
    """
    known = [gradient for gradient in gradients if gradient is not None]
    if len(known) < 2:
        return known[0] if known else None
    slices = [gradient for gradient in known if isinstance(gradient, tf.IndexedSlices)]
    if len(slices) < len(known):
        return tf.add_n([tf.convert_to_tensor(gradient) for gradient in known])
    rows = (tf.concat([getattr(each, part) for each in slices], axis=0) for part in ("values", "indices"))
    return tf.IndexedSlices(*rows, dense_shape=slices[0].dense_shape)
