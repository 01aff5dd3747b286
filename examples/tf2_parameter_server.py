"""TensorFlow 2's ParameterServerStrategy: a chief that sends steps to workers, with variables on the ps.

Each task needs TF_CONFIG; by hand, one terminal for each (`type` and `index` are the task's own):

    export CUDA_VISIBLE_DEVICES=
    TF_CONFIG='{"cluster": {"chief": ["localhost:2222"], "ps": ["localhost:2223"],
        "worker": ["localhost:2224"]}, "task": {"type": "ps", "index": 0}}' python tf2_parameter_server.py

The chief ends by itself; end the others with Ctrl-C. By psfleet, with the groups chief, ps and worker:

    trainer_program: examples/tf2_parameter_server.py
    trainer_program_arguments: [--steps=300]
"""

import argparse
import os

# Calls to a task that is not up yet are repeated and do not fail. TensorFlow reads this when it is loaded.
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")

import tensorflow as tf

BATCH_SIZE = 64
HIDDEN_UNITS = 16
# The chief reads the losses of this many steps at once, because waiting for each step costs more than the
# step.
STEPS_AT_ONCE = 20
# A worker that waits for its own function needs another thread to run it. With few cores there would be no
# other thread.
INTER_OP_THREADS = 4
# The metadata that tf.summary.scalar writes; that function needs TensorBoard to be installed.
SCALAR = tf.compat.v1.SummaryMetadata(plugin_data={"plugin_name": "scalars"})


def arguments() -> argparse.Namespace:
    """Return the options on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="steps of all workers together")
    parser.add_argument("--learning_rate", type=float, default=0.1)
    return parser.parse_args()


def serve(resolver: tf.distribute.cluster_resolver.ClusterResolver) -> None:
    """Serve as a worker or a ps until SIGTERM."""
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=INTER_OP_THREADS)
    cluster, job, index = resolver.cluster_spec(), resolver.task_type, resolver.task_id
    tf.distribute.Server(cluster, job, index, protocol="grpc", config=config).join()


def examples() -> tf.data.Dataset:
    """Return endless batches of points; each worker gets different points."""
    return tf.data.Dataset.random().map(lambda seed: points(BATCH_SIZE, seed))


def points(count: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return points x and y, each [count, 1], of a sine curve with noise; equal seeds give equal points."""
    place = tf.stack([seed, 0])
    x = tf.random.stateless_uniform([count, 1], place, -1.0, 1.0)
    return x, tf.sin(3 * x) + tf.random.stateless_normal([count, 1], place + 1, stddev=0.1)


class Network(tf.Module):
    """A network with one hidden layer, whose variables are on the ps in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = tf.Variable(tf.random.stateless_normal([1, HIDDEN_UNITS], [1, 2]), name="hidden")
        self.hidden_bias = tf.Variable(tf.zeros([HIDDEN_UNITS]), name="hidden_bias")
        self.output = tf.Variable(tf.zeros([HIDDEN_UNITS, 1]), name="output")
        self.output_bias = tf.Variable(tf.zeros([1]), name="output_bias")

    def loss(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """Return the mean squared error of a batch."""
        hidden = tf.tanh(x @ self.hidden + self.hidden_bias)
        return tf.reduce_mean(tf.square(hidden @ self.output + self.output_bias - y))


def train(strategy: tf.distribute.ParameterServerStrategy, options: argparse.Namespace) -> float:
    """Train, save checkpoints and summaries now and then; return the loss of 1000 test points."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        network = Network()
        global_step = tf.Variable(0, dtype=tf.int64, name="global_step", trainable=False)

    @tf.function
    def step(iterator: tf.data.Iterator) -> tf.Tensor:
        def on_worker(batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = network.loss(*batch)
            variables = network.trainable_variables
            for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
                variable.assign_sub(options.learning_rate * gradient)
            global_step.assign_add(1)
            return loss

        return strategy.run(on_worker, args=(next(iterator),))

    iterator = iter(coordinator.create_per_worker_dataset(examples))
    saved = tf.train.Checkpoint(network=network, global_step=global_step)
    manager = tf.train.CheckpointManager(saved, "checkpoints", max_to_keep=2)
    # The chief's own disk; by default each ps would write its variables to its own disk.
    here = tf.train.CheckpointOptions(experimental_io_device="/job:chief/task:0/cpu:0")
    if manager.latest_checkpoint:
        manager.checkpoint.restore(manager.latest_checkpoint, options=here).expect_partial()
        print(f"restored {manager.latest_checkpoint}", flush=True)
    with tf.summary.create_file_writer("summaries/chief0").as_default():
        while (taken := int(global_step.numpy())) < options.steps:
            several = [coordinator.schedule(step, args=(iterator,)) for _ in range(STEPS_AT_ONCE)]
            coordinator.join()
            losses = [float(value) for value in coordinator.fetch(several)]
            mean = sum(losses) / len(losses)
            taken = int(global_step.numpy())
            tf.summary.write("loss", mean, step=taken, metadata=SCALAR)
            if taken % 100 < STEPS_AT_ONCE:
                print(f"step {taken}, loss {mean:.4f}", flush=True)
                manager.save(checkpoint_number=taken, options=here)
    return float(network.loss(*points(1000, tf.constant(0, tf.int64))))


def main() -> None:
    """Coordinate as the chief, serve as a worker or a ps."""
    options = arguments()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
    if resolver.task_type != "chief":
        serve(resolver)
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    print(f"final loss: {train(strategy, options):.4f}", flush=True)


if __name__ == "__main__":
    main()
