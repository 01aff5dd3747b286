"""The trainer with a model that has a bug: its loss raises at step 10. Started like the trainer."""

import dataclasses
import itertools
import os
import sys

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer import __main__ as program
from trainer.model import models
from trainer.model.models import linear
from trainer.model.models.model import ModelContext, Variables
from trainer.task.gradient_samples import FIRST_SAMPLES

_calls = itertools.count(1)
_built = itertools.count()


def _fail(loss: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    if next(_calls) == FIRST_SAMPLES + 10:
        raise ValueError("the tenth step has a bug")
    return loss


def _broken_loss(
    context: ModelContext, variables: Variables, features: tf.Tensor, labels: tf.Tensor
) -> tf.Tensor:
    loss = linear.loss(context, variables, features, labels)
    if next(_built):  # those of the steps are built before those that only look at the gradients
        return loss
    checked = tf.numpy_function(_fail, [loss], tf.float32)
    return loss + 0 * tf.stop_gradient(tf.reshape(checked, []))


models.REGISTRY["linear"] = dataclasses.replace(models.REGISTRY["linear"], loss=_broken_loss)

if __name__ == "__main__":
    os._exit(program.main(sys.argv[1:]))
