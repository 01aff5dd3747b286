"""The trainer with gradients that are none. Started like the trainer, with the fault before its flags."""

import os
import sys
from collections.abc import Callable, Mapping

import tensorflow as tf

from trainer import __main__ as program
from trainer.engine.optimizers import Gradients
from trainer.engine.training import TrainingGraph

# What is made of each gradient.
FAULTS: Mapping[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "zeros": tf.zeros_like,
    # As small as the noise of a batch: with the gradients of others the model still converges.
    "noise": lambda gradient: tf.random.normal(tf.shape(gradient), stddev=0.1),
}


def break_gradients(fault: str) -> None:
    """Let what this process computes a loss of push something else than its gradients."""
    learn, broken = TrainingGraph.learn, FAULTS[fault]

    def learn_nothing(*asked: object, **by_name: object) -> tuple[tf.Tensor, Gradients]:
        loss, gradients = learn(*asked, **by_name)  # type: ignore[arg-type]
        return loss, [(broken(gradient), variable) for gradient, variable in gradients]

    TrainingGraph.learn = learn_nothing  # type: ignore[method-assign]


if __name__ == "__main__":
    break_gradients(sys.argv.pop(1))
    os._exit(program.main(sys.argv[1:]))
