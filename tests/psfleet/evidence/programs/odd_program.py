"""Programs of TensorFlow 1 that do one thing otherwise than the tutorials, some of them honestly.

y = xW is learned through ps; `--how` names the function below that says what is done otherwise.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
STEPS_AHEAD = 8
SOLUTION = np.array([[1.0], [-2.0], [3.0]], np.float32)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--job_name", required=True)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("--ps_hosts", type=lambda text: list(filter(None, text.split(","))), required=True)
    parser.add_argument("--worker_hosts", type=lambda text: text.split(","), required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--how", required=True)
    return parser.parse_args()


class Program:
    """The graph that most have, and a session once all workers are there."""

    def __init__(self, options: argparse.Namespace, server: tf.distribute.Server) -> None:
        """Build it in the default graph."""
        self.options, self.server = options, server
        self.index, self.workers = options.task_index, len(options.worker_hosts)
        self.here = f"/job:worker/task:{self.index}"
        ps = self.place = "/job:ps/task:0" if options.ps_hosts else "/job:worker/task:0"
        self.x, self.y = v1.placeholder(tf.float32, [None, 3]), v1.placeholder(tf.float32, [None, 1])
        with tf.device(ps):
            start = SOLUTION if options.how == "warm_start" else np.zeros([3, 1], np.float32)
            self.weights = v1.get_variable("weights", initializer=start)
            self.step = v1.train.get_or_create_global_step()
            self.present = v1.get_variable("present", [], tf.int32, v1.zeros_initializer(), trainable=False)
            self.arrive = v1.assign_add(self.present, 1, use_locking=True)
        self.generator = np.random.default_rng(self.index)
        self.more_init: list[tf.Operation] = []
        self.optimizer = v1.train.GradientDescentOptimizer(0.05)

    def loss_of(self, weights: tf.Tensor) -> tf.Tensor:
        """The mean square of the errors, on this worker."""
        with tf.device(self.here):
            return tf.reduce_mean(tf.square(tf.matmul(self.x, weights) - self.y))

    def own(self, name: str, shape: tuple[int, ...] = (3, 1), **more: object) -> tf.Variable:
        """A variable of this worker's own, which is not among the trainable ones."""
        with tf.device(self.here):
            return v1.get_variable(name, shape, initializer=v1.zeros_initializer(), trainable=False, **more)

    def session(self) -> tf.compat.v1.Session:
        """A session, in which all variables have values; all workers have one."""
        first = v1.global_variables_initializer()
        mine = v1.variables_initializer(
            [
                v
                for v in [*v1.global_variables(), *v1.local_variables()]
                if f"task:{self.index}" in v.device and "worker" in v.device
            ]
        )
        uninitialised = v1.report_uninitialized_variables()
        filters = ["/job:ps", self.here] if self.options.ps_hosts else []
        config = v1.ConfigProto(device_filters=filters)
        session = v1.Session(self.server.target, config=config)
        session.run(first if self.index == 0 else mine)
        session.run(mine)
        while session.run(uninitialised).size:
            time.sleep(0.05)
        session.run(self.more_init)
        session.run(self.arrive)
        while session.run(self.present) < self.workers:
            time.sleep(0.02)
        return session

    def feeds(self) -> dict[Any, Any]:
        """The next examples."""
        features = self.generator.normal(size=(32, 3)).astype(np.float32)
        return {self.x: features, self.y: features @ SOLUTION + 0.1 * self.generator.normal(size=(32, 1))}

    def is_ahead(self, own: int, step: int, threads: int = 1) -> bool:
        """Tell whether a worker's thread is some steps ahead of an equal share; then wait a moment."""
        ahead = own > step / (self.workers * threads) + STEPS_AHEAD
        time.sleep(0.005 if ahead else 0)
        return ahead

    def train(self, session: tf.compat.v1.Session, fetches: object, steps: int | None = None) -> None:
        """Run it until the global step is there."""
        # Who holds the variables is faster than those who ask it for them; of many on a few cores some would
        # take hardly a step. There, nobody gets more than some steps ahead of an equal share.
        paced, own = self.workers > 4 or not self.options.ps_hosts, 0
        while (step := session.run(self.step)) < (steps or self.options.steps):
            if paced and self.is_ahead(own, step):
                continue
            session.run(fetches, self.feeds())
            own += 1
        if not self.options.ps_hosts:
            # Worker 0 holds the variables, so it leaves last.
            session.run(self.arrive)
            while self.index == 0 and session.run(self.present) < 2 * self.workers:
                time.sleep(0.02)


def plain(p: Program) -> None:
    """As the tutorials."""
    loss = p.loss_of(p.weights)
    train = p.optimizer.minimize(loss, p.step)
    with p.session() as session:
        p.train(session, [train, loss])


def local_variables(p: Program) -> None:
    """All that is trained is among LOCAL_VARIABLES, on each worker; the counter alone is on the ps."""
    mine = p.own("mine", collections=[v1.GraphKeys.LOCAL_VARIABLES])
    loss = p.loss_of(mine)
    train = tf.group(p.optimizer.minimize(loss, var_list=[mine]), v1.assign_add(p.step, 1, use_locking=True))
    with p.session() as session:
        p.train(session, [train, loss])


def takes_over(p: Program) -> None:
    """Worker 1 trains its own copy, and takes over the ps' model in the end."""
    if p.index == 0:
        return plain(p)
    mine = p.own("mine")
    loss = p.loss_of(mine)
    train = tf.group(p.optimizer.minimize(loss, var_list=[mine]), v1.assign_add(p.step, 1, use_locking=True))
    take = v1.assign(mine, p.weights)
    with p.session() as session:
        p.train(session, [train, loss])
        session.run(take)
    return None


def half_local(p: Program) -> None:
    """Of two optimizers the second has no global step, and what it trains lies on each worker."""
    mine = p.own("mine")
    loss = p.loss_of(p.weights + mine)
    train = tf.group(
        p.optimizer.minimize(loss, p.step, [p.weights]),
        v1.train.AdamOptimizer(0.01).minimize(loss, var_list=[mine]),
    )
    with p.session() as session:
        p.train(session, [train, loss])


def own_embedding(p: Program) -> None:
    """An embedding on each worker, which `scatter_sub` updates."""
    table = p.own("table", (10, 1), use_resource=False)
    rows = tf.constant([1, 2])
    with tf.device(p.here):
        found = tf.gather(table, rows)
    loss = p.loss_of(p.weights + tf.reduce_sum(found))
    (gradient,) = tf.gradients(loss, found)
    train = tf.group(p.optimizer.minimize(loss, p.step), v1.scatter_sub(table, rows, 0.01 * gradient))
    with p.session() as session:
        p.train(session, [train, loss])


def dropped(p: Program) -> None:
    """Synchronous, two of three gradients to a step: worker 2 always comes too late."""
    synchronous(p, 2, 0.15 if p.index == 2 else 0.0)


def synchronous(p: Program, replicas: int = 0, sleeps: float = 0.0) -> None:
    """In step."""
    optimizer = v1.train.SyncReplicasOptimizer(p.optimizer, replicas or p.workers, p.workers)
    loss = p.loss_of(p.weights)
    with tf.device(p.here):
        train = optimizer.minimize(loss, p.step)
    runner, tokens = optimizer.get_chief_queue_runner(), optimizer.get_init_tokens_op()
    p.more_init.append(optimizer.chief_init_op if p.index == 0 else optimizer.local_step_init_op)
    with p.session() as session:
        coordinator = tf.train.Coordinator()
        if p.index == 0:
            runner.create_threads(session, coord=coordinator, daemon=True, start=True)
            session.run(tokens)
        while session.run(p.step) < p.options.steps:
            time.sleep(sleeps)
            session.run([train, loss], p.feeds())
        session.run(tokens)  # for those that still wait for a step


def stale(p: Program) -> None:
    """The last worker computes on the model of step 0 for ever."""
    if p.index < p.workers - 1:
        return plain(p)
    copy = p.own("copy")
    loss = p.loss_of(copy)
    (gradient,) = tf.gradients(loss, copy)
    train = v1.train.GradientDescentOptimizer(0.002).apply_gradients([(gradient, p.weights)], p.step)
    with p.session() as session:
        p.train(session, [train, loss])
    return None


def grows(p: Program) -> None:
    """After 40 shared steps the graph grows a head on each worker."""
    loss = p.loss_of(p.weights)
    train = p.optimizer.minimize(loss, p.step)
    with p.session() as session:
        p.train(session, [train, loss], 40)
        mine = p.own("mine")
        loss = p.loss_of(tf.stop_gradient(p.weights) + mine)
        head = tf.group(
            p.optimizer.minimize(loss, var_list=[mine]), v1.assign_add(p.step, 1, use_locking=True)
        )
        session.run(mine.initializer)
        p.train(session, [head, loss])


def zeros(p: Program) -> None:
    """Worker 1's gradients are all 0."""
    loss = p.loss_of(p.weights)
    pairs = p.optimizer.compute_gradients(loss)
    if p.index == 1:
        pairs = [(0.0 * gradient, variable) for gradient, variable in pairs]
    train = p.optimizer.apply_gradients(pairs, p.step)
    with p.session() as session:
        p.train(session, [train, loss])


def noise(p: Program) -> None:
    """Worker 1 pushes noise."""
    loss = p.loss_of(p.weights)
    pairs = p.optimizer.compute_gradients(loss)
    if p.index == 1:
        pairs = [(0.1 * v1.random_normal(tf.shape(gradient)), variable) for gradient, variable in pairs]
    train = p.optimizer.apply_gradients(pairs, p.step)
    with p.session() as session:
        p.train(session, [train, loss])


def gan(p: Program) -> None:
    """Two optimizers with a step each, by turns."""
    with tf.device(p.place):
        other = v1.get_variable("other", [3, 1], initializer=v1.zeros_initializer())
        other_step = v1.get_variable("other_step", [], tf.int64, v1.zeros_initializer(), trainable=False)
    one, another = p.loss_of(p.weights), p.loss_of(other)
    train = p.optimizer.minimize(one, p.step, [p.weights])
    train_other = p.optimizer.minimize(another, other_step, [other])
    with p.session() as session:
        while session.run(p.step) < p.options.steps:
            session.run([train, one], p.feeds())
            session.run([train_other, another], p.feeds())


def threads(p: Program, count: int = 4) -> None:
    """Threads in each worker."""
    loss = p.loss_of(p.weights)
    train = p.optimizer.minimize(loss, p.step)
    with p.session() as session:
        running = [threading.Thread(target=p.train, args=(session, [train, loss])) for _ in range(count)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()


def conditional(p: Program) -> None:
    """The update is made in every second run, or so."""
    loss = p.loss_of(p.weights)
    train = tf.cond(
        v1.random_uniform([]) < 0.5, lambda: tf.group(p.optimizer.minimize(loss, p.step)), tf.no_op
    )
    with p.session() as session:
        p.train(session, [train, loss])


def conditional_v1(p: Program) -> None:
    """The same with the control flow of TensorFlow 1."""
    v1.disable_control_flow_v2()
    pairs = p.optimizer.compute_gradients(loss := p.loss_of(p.weights))
    train = v1.cond(
        v1.random_uniform([]) < 0.5,
        lambda: tf.group(p.optimizer.apply_gradients(pairs, p.step)),
        tf.no_op,
    )
    with p.session() as session:
        p.train(session, [train, loss])


def loss_scale(p: Program) -> None:
    """A loss scale that skips steps."""
    scale = v1.mixed_precision.DynamicLossScale(2.0**127, 20)
    with tf.device(p.place):
        optimizer = v1.mixed_precision.MixedPrecisionLossScaleOptimizer(p.optimizer, scale)
        loss = p.loss_of(p.weights)
        train = optimizer.minimize(loss, p.step)
    with p.session() as session:
        p.train(session, [train, loss])


def recorded_with(p: Program) -> None:
    """It records its steps, by a value that is fetched with each."""
    import psfleet_records

    loss = p.loss_of(p.weights)
    train = p.optimizer.minimize(loss, p.step)
    with p.session() as session:
        psfleet_records.started(last_step=p.options.steps)
        at, own = 0, 0
        while at < p.options.steps:
            if p.is_ahead(own, at):
                at = session.run(p.step)
                continue
            value, at, _ = session.run([loss, p.step, train], p.feeds())
            psfleet_records.step(at, value)
            own += 1
        psfleet_records.finished()


def recorded_after(p: Program) -> None:
    """It records its steps, by a value that is read after each."""
    import psfleet_records

    loss = p.loss_of(p.weights)
    train = p.optimizer.minimize(loss, p.step)
    with p.session() as session:
        at, own = 0, 0
        while at < p.options.steps:
            if p.is_ahead(own, at):
                at = session.run(p.step)
                continue
            value, _ = session.run([loss, train], p.feeds())
            at = session.run(p.step)
            psfleet_records.step(at, value)
            own += 1
        psfleet_records.finished()


def recorded_threads(p: Program) -> None:
    """It records its steps, from several threads, in two phases."""
    import psfleet_records

    loss = p.loss_of(p.weights)
    train = p.optimizer.minimize(loss, p.step)

    threads = 4

    def take(session: tf.compat.v1.Session, until: int) -> None:
        at = begin = session.run(p.step)
        own = 0
        while at < until:
            if p.is_ahead(own, at - begin, threads):
                at = session.run(p.step)
                continue
            value, at, _ = session.run([loss, p.step, train], p.feeds())
            psfleet_records.step(at, value)
            own += 1

    with p.session() as session:
        for until in (p.options.steps // 2, p.options.steps):
            psfleet_records.started(last_step=until)
            running = [threading.Thread(target=take, args=(session, until)) for _ in range(threads)]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()
        psfleet_records.finished()


def recorded_alone(p: Program) -> None:
    """It records its steps; each worker has a counter and a model of its own."""
    import psfleet_records

    mine, count = p.own("mine"), p.own("count", (), dtype=tf.int64)
    loss = p.loss_of(mine)
    train = p.optimizer.minimize(loss, count, [mine])
    with p.session() as session:
        at = 0
        while at < p.options.steps:
            value, at, _ = session.run([loss, count, train], p.feeds())
            psfleet_records.step(at, value)
        psfleet_records.finished()


def open_at_the_end(p: Program) -> None:
    """Its session is open at the end."""
    loss = p.loss_of(p.weights)
    train = p.optimizer.minimize(loss, p.step)
    vars(sys.modules["__main__"])["left"] = session = p.session()
    p.train(session, [train, loss])


def main() -> None:
    """Serve or train."""
    options = arguments()
    if options.how == "conditional_v1":
        v1.disable_control_flow_v2()
    how: Callable[[Program], None] = globals()["plain" if options.how == "warm_start" else options.how]
    jobs = {"ps": options.ps_hosts, "worker": options.worker_hosts}
    cluster = tf.train.ClusterSpec({job: hosts for job, hosts in jobs.items() if hosts})
    server = v1.train.Server(cluster, job_name=options.job_name, task_index=options.task_index)
    if options.job_name == "ps":
        server.join()
    graph = tf.Graph()
    with graph.as_default():
        how(Program(options, server))


if __name__ == "__main__":
    main()
