"""TensorFlow 2's ParameterServerStrategy: a coordinator that sends steps to workers, variables on the ps.

TF_CONFIG says which task this is; the flags are the trainer's flags with --job_name=local.
"""

import os
import sys
import time
from threading import Thread

# Calls to a task that is not up yet are repeated and do not fail. TensorFlow reads this when it is loaded.
os.environ.setdefault("GRPC_FAIL_FAST", "use_caller")

import tensorflow as tf

from benchmarks.programs.common import Progress, Training, runtime
from trainer.process import flags

v1 = tf.compat.v1
# With a single thread, a worker that waits for its own function has no thread to run the function, and hangs.
_LEAST_INTER_OP_THREADS = 4
# A variable with fewer bytes stays whole: so do the weights of models with tables, but not the tables.
_WHOLE = 1 << 20
# The time between the coordinator's waits for all scheduled steps: the longer this time, the less workers
# wait.
_SECONDS_BETWEEN_JOINS = 1.5
# Progress is read as often as the trainer records steps: after this share of the time since the start.
_SHARE_OF_THE_PAST, _LEAST_SECONDS, _MOST_SECONDS = 0.04, 0.05, 0.5


def main(options: flags.Options) -> None:
    """Serve as a worker or a ps, or coordinate the training as the chief, as TF_CONFIG says.

    It does not return: the process must be ended from outside.
    """
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
    config = runtime(options.settings.threads, _LEAST_INTER_OP_THREADS)
    if resolver.task_type != "chief":
        spec = resolver.cluster_spec()
        tf.distribute.Server(
            spec, resolver.task_type, resolver.task_id, protocol="grpc", config=config
        ).join()
    ps = resolver.cluster_spec().num_tasks("ps")
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(_WHOLE, ps)
    strategy = tf.distribute.ParameterServerStrategy(resolver, partitioner)
    coordinate(strategy, Training(options), Progress(options))


def coordinate(
    strategy: tf.distribute.ParameterServerStrategy, training: Training, progress: Progress
) -> None:
    """Send training steps to the workers, until the process is ended from outside.

    Each time, wait until all steps that were sent are done, then send more. Progress is reported meanwhile.
    """
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variables, tables = training.variables(), training.tables()
        trained = [*variables, *(part for table in tables for part in table.variables)]
        # This optimizer's update is one operation on the ps; an optimizer of Keras 3 would pull its slots,
        # too.
        optimizer = training.optimizer()
        optimizer._create_slots(trained)  # tf.function may not create variables
        # The steps taken and the sum of their losses: one call to the ps counts both.
        counts = tf.Variable([0.0, 0.0], dtype=tf.float64, trainable=False)

    @tf.function
    def step(iterator: tf.data.Iterator) -> tf.Tensor:
        def on_worker(features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = training.loss(variables, tables, features, labels)
            optimizer.apply_gradients(zip(tape.gradient(loss, trained), trained, strict=True))
            counts.assign_add(tf.stack([tf.ones([], tf.float64), tf.cast(loss, tf.float64)]))
            return loss

        return strategy.run(on_worker, args=next(iterator))

    iterator = iter(coordinator.create_per_worker_dataset(lambda: training.dataset(seed=None)))
    Thread(target=report_steps, args=(counts, progress), daemon=True).start()
    at_once = 20
    while True:
        began = time.monotonic()
        for _ in range(at_once):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        pace = at_once / (time.monotonic() - began)
        at_once = max(20, min(2 * at_once, int(pace * _SECONDS_BETWEEN_JOINS)))


def report_steps(counts: tf.Variable, progress: Progress) -> None:
    """Read `counts` again and again, and report new steps with their mean loss; it does not return.

    `counts` is float64 [2]: the steps taken so far, and the sum of their losses.
    """
    began, before, sum_before = time.monotonic(), 0, 0.0
    while True:
        taken, losses = (float(value) for value in counts.numpy())
        if taken > before:
            steps = int(taken) - before
            progress.report(int(taken), (losses - sum_before) / steps, steps)
            before, sum_before = int(taken), losses
        passed = time.monotonic() - began
        time.sleep(min(max(_SHARE_OF_THE_PAST * passed, _LEAST_SECONDS), _MOST_SECONDS))


if __name__ == "__main__":
    main(flags.parse(sys.argv[1:]))
