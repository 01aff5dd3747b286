"""What tutorials of TensorFlow 1 have: four flags, feeds, a Supervisor. It knows nothing of psfleet.

`--how` says what is done otherwise: by some honestly, by others so that nothing is shared.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

WEIGHTS = np.array([[1.0, -1.0], [2.0, 0.5], [-1.5, 1.0]])
# With --how=tables, features are three of so many ids, and each id has weights of its own.
IDS = 1000
WEIGHTS_OF_IDS = np.random.default_rng(7).normal(size=(IDS, 2))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--ps_hosts", type=lambda text: text.split(","), required=True)
    parser.add_argument("--worker_hosts", type=lambda text: text.split(","), required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--how", default="supervisor")
    parser.add_argument("--references", action="store_true", help="variables as TensorFlow 1 had them")
    return parser.parse_args()


def batch(generator: np.random.Generator, how: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Features [64, 3], and the class of each [64]."""
    if how == "tables":
        ids = generator.integers(IDS, size=(64, 3))
        return ids, np.argmax(WEIGHTS_OF_IDS[ids].sum(axis=1), axis=1)
    features = generator.normal(size=(64, 3))
    return features, np.argmax(features @ WEIGHTS, axis=1)


def place(options: argparse.Namespace) -> str | Callable[[tf.Operation], str]:
    """Where the variables are."""
    worker = f"/job:worker/task:{options.task_index}"
    if options.how == "own_ps":
        return lambda node: f"/job:ps/task:{options.task_index}" if "Var" in node.type else worker
    if options.how == "own_process":
        return "/cpu:0"
    cluster = tf.train.ClusterSpec({"ps": options.ps_hosts, "worker": options.worker_hosts})
    by_turns: Callable[[tf.Operation], str] = v1.train.replica_device_setter(
        worker_device=worker, cluster=cluster
    )
    return by_turns


def train(server: tf.distribute.Server, options: argparse.Namespace) -> None:
    """Build the graph, and take steps until the global step is the last."""
    chief = options.task_index == 0 or options.how in {"own_ps", "own_process"}
    with v1.device(place(options)):
        global_step = v1.Variable(0, name="global_step", trainable=False, dtype=tf.int64)
        x, y = v1.placeholder(tf.float32, [None, 3]), v1.placeholder(tf.int64, [None])
        weights = v1.Variable(v1.truncated_normal([3, 2], stddev=0.1, seed=1), name="weights")
        bias = v1.Variable(tf.zeros([2]), name="bias")
        logits = tf.matmul(x, weights) + bias
        if options.how == "tables":
            x = v1.placeholder(tf.int64, [None, 3])
            partitioner = v1.fixed_size_partitioner(len(options.ps_hosts))
            table = v1.get_variable("table", [IDS, 2], partitioner=partitioner)
            logits = tf.reduce_sum(v1.nn.embedding_lookup(table, x), axis=1) + bias
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        optimizer = (
            v1.train.AdagradOptimizer(0.5) if options.how == "tables" else v1.train.AdamOptimizer(0.02)
        )
        more: dict[str, Any] = {}
        if options.how == "synchronous":
            workers = len(options.worker_hosts)
            optimizer = v1.train.SyncReplicasOptimizer(optimizer, workers, workers)
        if options.how == "clipped":
            pairs = optimizer.compute_gradients(loss)
            clipped = [(tf.clip_by_norm(gradient, 5.0), variable) for gradient, variable in pairs]
            train_op = tf.group(optimizer.apply_gradients(clipped, global_step), name="train")
        elif options.how == "counted_apart":
            train_op = tf.group(optimizer.minimize(loss), v1.assign_add(global_step, 1))
        else:
            train_op = optimizer.minimize(loss, global_step=global_step)
        if options.how == "synchronous":
            more["local_init_op"] = optimizer.chief_init_op if chief else optimizer.local_step_init_op
            more["ready_for_local_init_op"] = optimizer.ready_for_local_init_op
            runner, tokens = optimizer.get_chief_queue_runner(), optimizer.get_init_tokens_op()
        present = v1.Variable(0, name="present", trainable=False)
        arrive = v1.assign_add(present, 1, use_locking=True)
        initialise = v1.global_variables_initializer()
    supervisor = v1.train.Supervisor(
        is_chief=chief,
        logdir=None,
        init_op=initialise,
        global_step=global_step,
        recovery_wait_secs=1,
        saver=None,
        summary_op=None,
        **more,
    )
    target = "" if options.how == "own_process" else server.target
    config = v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{options.task_index}"])
    with supervisor.prepare_or_wait_for_session(target, config=config) as session:
        if options.how == "synchronous" and chief:
            supervisor.start_queue_runners(session, [runner])
            session.run(tokens)
        session.run(arrive)
        while session.run(present) < (1 if options.how.startswith("own") else len(options.worker_hosts)):
            time.sleep(0.05)
        began = time.monotonic()
        generator, at, found = np.random.default_rng(options.task_index), 0, 0.0
        while not supervisor.should_stop() and at < options.steps:
            features, labels = batch(generator, options.how)
            _, found, at = session.run([train_op, loss, global_step], {x: features, y: labels})
        print(f"final loss: {found:.4f} at step {at}, {time.monotonic() - began:.2f} s", flush=True)


def main() -> None:
    """Serve or train."""
    options = arguments()
    if options.references:
        v1.disable_resource_variables()
    cluster = tf.train.ClusterSpec({"ps": options.ps_hosts, "worker": options.worker_hosts})
    server = v1.train.Server(cluster, job_name=options.job_name, task_index=options.task_index)
    if options.job_name == "ps":
        server.join()
    with tf.Graph().as_default():
        train(server, options)


if __name__ == "__main__":
    main()
