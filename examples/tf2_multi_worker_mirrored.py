"""TensorFlow 2's MultiWorkerMirroredStrategy: workers alone, in step. It writes psfleet's records.

Each worker needs TF_CONFIG; by hand, after `pip install -r requirements.txt`, in one terminal for each:

    export PYTHONPATH=../trainer/program/library CUDA_VISIBLE_DEVICES=
    TF_CONFIG='{"cluster": {"worker": ["localhost:2222", "localhost:2223"]},
        "task": {"type": "worker", "index": 0}}' python tf2_multi_worker_mirrored.py

All end by themselves. By psfleet, with the group worker alone:

    trainer_program: examples/tf2_multi_worker_mirrored.py
    trainer_program_flags: false
    trainer_program_requirements: examples/requirements.txt
"""

import argparse
import os

# Calls to a worker that is not up yet are repeated and do not fail. TensorFlow reads this when it is loaded.
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")

import psfleet_records
import tensorflow as tf
from tabulate import tabulate

BATCH_SIZE = 50  # of each worker
WEIGHTS, BIAS, NOISE = [1.5, -0.5, 2.0], 0.25, 0.1


def arguments() -> argparse.Namespace:
    """Return the options on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--learning_rate", type=float, default=0.1)
    return parser.parse_args()


def examples(count: int, seed: tuple[int, int]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return features [count, 3] and labels [count] of a plane with noise; equal seeds give equal ones."""
    features = tf.random.stateless_uniform([count, len(WEIGHTS)], seed, -1.0, 1.0)
    noise = tf.random.stateless_normal([count], (seed[0] + 1, seed[1]), stddev=NOISE)
    return features, tf.linalg.matvec(features, WEIGHTS) + BIAS + noise


class Plane(tf.Module):
    """A linear model. Changes of a variable are averaged over all workers before they are applied."""

    def __init__(self) -> None:
        super().__init__()
        average = tf.VariableAggregation.MEAN
        self.weights = tf.Variable(tf.zeros([len(WEIGHTS)]), name="weights", aggregation=average)
        self.bias = tf.Variable(0.0, name="bias", aggregation=average)

    def loss(self, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Return the mean squared error."""
        return tf.reduce_mean(tf.square(tf.linalg.matvec(features, self.weights) + self.bias - labels))


def train(
    strategy: tf.distribute.MultiWorkerMirroredStrategy, worker: int, options: argparse.Namespace
) -> tuple[Plane, list[tuple[int, float]]]:
    """Take all steps; return the model, and (step, loss of this worker's examples) of every 50th step."""
    with strategy.scope():
        model = Plane()

    @tf.function
    def step(number: tf.Tensor) -> tf.Tensor:
        def on_worker() -> tf.Tensor:
            # Each worker has its own examples.
            with tf.GradientTape() as tape:
                loss = model.loss(*examples(BATCH_SIZE, (2 * worker, number)))
            variables = model.trainable_variables
            for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
                variable.assign_sub(options.learning_rate * gradient)
            return loss

        return strategy.run(on_worker)

    lines = []
    for number in range(1, options.steps + 1):
        loss = float(step(tf.constant(number)))
        psfleet_records.step(number, loss, examples=BATCH_SIZE)
        if number % 50 == 0:
            print(f"step {number}, loss {loss:.4f}", flush=True)
            lines.append((number, loss))
    return model, lines


def main() -> None:
    """Train as one of the workers; worker 0 also evaluates and saves."""
    options = arguments()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
    ring = tf.distribute.experimental.CommunicationImplementation.RING
    options_of_strategy = tf.distribute.experimental.CommunicationOptions(implementation=ring)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver, options_of_strategy)
    worker = resolver.task_id
    psfleet_records.started(last_step=options.steps, replication="sync", learning_rate=options.learning_rate)
    model, lines = train(strategy, worker, options)
    final = float(model.loss(*examples(1000, (1_000_000, 0))))
    if worker == 0:
        psfleet_records.evaluated(options.steps, loss=final)
        path = tf.train.Checkpoint(model=model).write("checkpoints/model")
        psfleet_records.checkpointed(options.steps, path)
    psfleet_records.finished()
    print(tabulate(lines, headers=["step", "loss"], floatfmt=".4f"))
    print(f"weights {model.weights.numpy().round(4).tolist()}, bias {model.bias.numpy():.4f}")
    print(f"final loss: {final:.4f}", flush=True)


if __name__ == "__main__":
    main()
