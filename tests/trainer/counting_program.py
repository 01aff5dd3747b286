"""The trainer with a model whose weights count the global steps: from 0, at rate 1 with gradients of -1."""

import dataclasses
import os
import sys

import tensorflow as tf

from trainer import __main__ as program
from trainer.model import models
from trainer.model.models.model import ModelContext, Values


def _loss(_context: ModelContext, variables: Values, _features: tf.Tensor, _labels: tf.Tensor) -> tf.Tensor:
    return -tf.add_n([tf.reduce_sum(tf.convert_to_tensor(variable)) for variable in variables])


_PARTITION = models.REGISTRY["partition"]
models.REGISTRY["partition"] = dataclasses.replace(
    _PARTITION, loss=_loss, card=dataclasses.replace(_PARTITION.card, rates_per_gradient=False)
)

if __name__ == "__main__":
    os._exit(program.main(sys.argv[1:]))
