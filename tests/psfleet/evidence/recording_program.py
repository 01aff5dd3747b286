"""A user's program: y = 2x + 10 by workers that share a model on the ps, or train one each."""

import argparse
import time

import numpy as np
import psfleet_records
import tensorflow as tf

v1 = tf.compat.v1


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--ps_hosts", type=lambda text: text.split(","), required=True)
    parser.add_argument("--worker_hosts", type=lambda text: text.split(","), required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--alone", action="store_true", help="each worker has all variables itself")
    return parser.parse_args()


def train(options: argparse.Namespace, server: tf.compat.v1.train.Server) -> None:
    """Take steps until the global step reaches the last one."""
    workers, index = len(options.worker_hosts), options.task_index
    here = f"/job:worker/task:{index}"
    with tf.device(here if options.alone else "/job:ps/task:0"):
        model = v1.get_variable("model", [2], initializer=v1.zeros_initializer(), use_resource=True)
        counts = v1.get_variable("counts", [2], tf.int64, v1.zeros_initializer(), use_resource=True)
        arrive, step = (counts.assign_add(np.array(one), read_value=True) for one in ([0, 1], [1, 0]))
    with tf.device(here):
        x, y = v1.placeholder(tf.float32, [None]), v1.placeholder(tf.float32, [None])
        loss = tf.reduce_mean(tf.square(y - (x * model[0] + model[1])))
        (gradient,) = tf.gradients(loss, model)
    applied = model.assign_sub(0.1 * gradient).op
    filters = ["/job:ps", here]
    with v1.Session(server.target, config=v1.ConfigProto(device_filters=filters)) as session:
        if index == 0 or options.alone:
            session.run(v1.global_variables_initializer())
        while session.run(v1.report_uninitialized_variables()).size:
            time.sleep(0.05)
        present = session.run(arrive)[1]
        while not options.alone and present < workers:
            time.sleep(0.01)
            present = session.run(counts)[1]
        psfleet_records.started(last_step=options.steps)
        generator, global_step = np.random.default_rng(index), 0
        while global_step < options.steps:
            features = generator.uniform(-1, 1, 50)
            feeds = {x: features, y: 2 * features + 10}
            found, _ = session.run([loss, applied], feeds)
            global_step = int(session.run(step)[0])
            psfleet_records.step(global_step, float(found), examples=50)
        weight, bias = session.run(model)
        psfleet_records.evaluated(global_step, weight=weight, bias=bias)
        psfleet_records.finished()
        print(f"weight: {weight:.4f} bias: {bias:.4f}", flush=True)


def main() -> None:
    """Serve or train."""
    options = arguments()
    cluster = tf.train.ClusterSpec({"ps": options.ps_hosts, "worker": options.worker_hosts})
    server = v1.train.Server(cluster, job_name=options.job_name, task_index=options.task_index)
    if options.job_name == "ps":
        server.join()
    with tf.Graph().as_default():
        train(options, server)


if __name__ == "__main__":
    main()
