"""Between-graph replication with parameter servers, as TensorFlow 1 has it. It knows nothing of psfleet.

By hand, one terminal for each task:

    export CUDA_VISIBLE_DEVICES=
    export HOSTS="--ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224"
    python tf1_between_graph.py $HOSTS --job_name=ps     --task_index=0
    python tf1_between_graph.py $HOSTS --job_name=worker --task_index=0
    python tf1_between_graph.py $HOSTS --job_name=worker --task_index=1

The workers end by themselves; end the ps with Ctrl-C. By psfleet, in the inventory:

    trainer_program: examples/tf1_between_graph.py
    trainer_program_arguments: [--steps=400]
"""

import argparse
import time

import tensorflow as tf

v1 = tf.compat.v1

WEIGHTS, BIAS, NOISE = [3.0, -2.0], 1.0, 0.3
BATCH_SIZE = 100


def arguments() -> argparse.Namespace:
    """Return the options on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--job_name", choices=["ps", "worker"], required=True)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--ps_hosts", type=lambda text: text.split(","), required=True)
    parser.add_argument("--worker_hosts", type=lambda text: text.split(","), required=True)
    parser.add_argument("--steps", type=int, default=400, help="global steps, of all workers together")
    parser.add_argument("--learning_rate", type=float, default=0.05)
    return parser.parse_args()


def batch(seed: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return features [100, 2] and labels [100] of a plane with noise; every step has new ones."""
    features = v1.random_uniform([BATCH_SIZE, 2], -1, 1, seed=seed)
    labels = tf.linalg.matvec(features, WEIGHTS) + BIAS
    return features, labels + v1.random_normal([BATCH_SIZE], stddev=NOISE, seed=seed + 1)


class WorkerSession(tf.compat.v1.train.SessionCreator):
    """Creates a session that waits until the chief has set the variables.

    MonitoredTrainingSession polls only every 30 s, so a worker that is a little late could miss a short run.
    """

    def __init__(
        self, scaffold: tf.compat.v1.train.Scaffold, master: str, config: tf.compat.v1.ConfigProto
    ) -> None:
        self._scaffold, self._master, self._config = scaffold, master, config

    def create_session(self) -> tf.compat.v1.Session:
        """Return a session once the variables are set."""
        scaffold = self._scaffold.finalize()
        manager = v1.train.SessionManager(
            scaffold.local_init_op, scaffold.ready_op, scaffold.ready_for_local_init_op, recovery_wait_secs=1
        )
        return manager.wait_for_session(self._master, self._config)


def open_session(
    scaffold: tf.compat.v1.train.Scaffold, master: str, options: argparse.Namespace
) -> tf.compat.v1.train.MonitoredSession:
    """Return this worker's session; the chief's session also sets, restores and saves the variables."""
    hooks = [v1.train.StopAtStepHook(last_step=options.steps)]
    # Without filters a session waits for every task of the cluster, even for a worker that has left.
    config = v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{options.task_index}"])
    if options.task_index > 0:
        return v1.train.MonitoredSession(WorkerSession(scaffold, master, config), hooks)
    return v1.train.MonitoredTrainingSession(
        master,
        is_chief=True,
        checkpoint_dir="checkpoints",
        save_checkpoint_secs=30,
        scaffold=scaffold,
        hooks=hooks,
        config=config,
    )


def train(
    server: tf.compat.v1.train.Server, cluster: tf.train.ClusterSpec, options: argparse.Namespace
) -> float:
    """Take steps until the last global step; return the mean of the last 20 losses."""
    task = f"/job:worker/task:{options.task_index}"
    with v1.device(v1.train.replica_device_setter(cluster=cluster, worker_device=task)):
        features, labels = batch(seed=100 * options.task_index + 1)
        weights = v1.get_variable("weights", [2], initializer=v1.zeros_initializer())
        bias = v1.get_variable("bias", [], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.linalg.matvec(features, weights) + bias - labels))
        global_step = v1.train.get_or_create_global_step()
        optimizer = v1.train.GradientDescentOptimizer(options.learning_rate)
        step = optimizer.minimize(loss, global_step)
        # All workers begin together: each counts itself on a ps, and waits for the others. A run that goes on
        # from a checkpoint does not wait, because the count is in the checkpoint.
        present = v1.get_variable("present", [], tf.int32, v1.zeros_initializer(), trainable=False)
        arrive = present.assign_add(1, use_locking=True)
    with v1.device(f"{task}/cpu:0"):
        # One file, on the chief's own disk. The default saver writes a part on each ps's disk.
        saver = v1.train.Saver(sharded=False)
    losses: list[float] = []
    workers = len(options.worker_hosts)
    with open_session(v1.train.Scaffold(saver=saver), server.target, options) as session:
        # Not session.run: its hooks would count these calls as steps.
        session.run_step_fn(lambda step_context: step_context.session.run(arrive))
        while session.run_step_fn(lambda step_context: step_context.session.run(present)) < workers:
            time.sleep(0.1)
        while not session.should_stop():
            value, at, _ = session.run([loss, global_step, step])
            losses.append(float(value))
            if len(losses) % 50 == 0:
                print(f"local step {len(losses)}, global step {at}, loss {value:.4f}", flush=True)
    return sum(losses[-20:]) / len(losses[-20:])


def main() -> None:
    """Serve as a parameter server, or train as a worker."""
    options = arguments()
    cluster = tf.train.ClusterSpec({"ps": options.ps_hosts, "worker": options.worker_hosts})
    server = v1.train.Server(cluster, job_name=options.job_name, task_index=options.task_index)
    if options.job_name == "ps":
        server.join()  # for ever: SIGTERM ends it
    with tf.Graph().as_default():
        print(f"final loss: {train(server, cluster, options):.4f}", flush=True)


if __name__ == "__main__":
    main()
