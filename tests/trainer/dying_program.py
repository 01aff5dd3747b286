"""The trainer as a worker that dies amid a synchronous step: admitted, and none of its gradients is added."""

import itertools
import os
import signal
import sys
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from trainer import __main__ as program
from trainer.engine.synchronous_rounds import RoundOperations

_STEP = 20
_calls = itertools.count(1)
_admission = RoundOperations._admission


def _die_at_step(local_step: np.int64) -> np.int64:
    if next(_calls) == _STEP:
        os.kill(os.getpid(), signal.SIGKILL)
    return local_step


def _admission_that_kills(
    operations: RoundOperations, own_round: tf.Tensor, received: Sequence[tf.Tensor]
) -> tf.Tensor:
    admitted = _admission(operations, own_round, received)
    with tf.device(f"/job:worker/task:{operations.worker}/device:CPU:0"):
        return tf.ensure_shape(tf.numpy_function(_die_at_step, [admitted], tf.int64), [])


RoundOperations._admission = _admission_that_kills  # type: ignore[method-assign, assignment]

if __name__ == "__main__":
    os._exit(program.main(sys.argv[1:]))
