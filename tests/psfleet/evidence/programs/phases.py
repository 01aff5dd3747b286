"""Programs that train one model together for a part of the run only, and honest ones that look like them.

`--how` names the function below. Each worker learns y = xW; JOINT global steps of it are made together.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from tests.psfleet.evidence.programs.odd_program import SOLUTION, Program, arguments, v1

JOINT, ALONE = 300, 200


class Alone:
    """A model of this worker's own in the default graph, and what trains it."""

    def __init__(self, device: str, counter: tf.Variable | None = None) -> None:
        """Build it on a device."""
        generator = np.random.default_rng(1)
        self._batches = ((x := generator.normal(size=(32, 3)), x @ SOLUTION) for _ in iter(int, 1))
        with tf.device(device):
            self._x, self._y = v1.placeholder(tf.float32, [None, 3]), v1.placeholder(tf.float32, [None, 1])
            self.weights = v1.get_variable(
                "alone", [3, 1], initializer=v1.zeros_initializer(), trainable=False
            )
            self.loss = tf.reduce_mean(tf.square(tf.matmul(self._x, self.weights) - self._y))
            optimizer = v1.train.GradientDescentOptimizer(0.05)
            self.train = optimizer.minimize(self.loss, counter, [self.weights])

    def learn(self, session: v1.Session, steps: int = ALONE) -> None:
        """Take steps."""
        for _ in range(steps):
            x, y = next(self._batches)
            session.run(self.train, {self._x: x, self._y: y})


def together(p: Program) -> tuple[tf.Tensor, list[Any]]:
    """What trains the shared model."""
    loss = p.loss_of(p.weights)
    return loss, [p.optimizer.minimize(loss, p.step), loss]


def grown(p: Program) -> None:
    """After the joint steps the graph grows a model on each worker, which counts no steps."""
    _, fetches = together(p)
    with p.session() as session:
        p.train(session, fetches, JOINT)
        alone = Alone(p.here)
        session.run(alone.weights.initializer)
        alone.learn(session)


def alone_first(p: Program) -> None:
    """Each worker trains a model of its own in a graph of its own first, and the shared one then."""
    _, fetches = together(p)
    with tf.Graph().as_default(), v1.Session() as session:
        alone = Alone("")
        session.run(v1.global_variables_initializer())
        alone.learn(session)
    with p.session() as session:
        p.train(session, fetches, JOINT)


def other_graph(p: Program) -> None:
    """The second graph is in a session to the same server."""
    _, fetches = together(p)
    with p.session() as session:
        p.train(session, fetches, JOINT)
    with tf.Graph().as_default(), v1.Session(p.server.target) as session:
        alone = Alone(p.here)
        session.run(v1.global_variables_initializer())
        alone.learn(session)


def by_turns(p: Program) -> None:
    """Two train ops are fetched by turns, in parts of the run; the second trains a model on the worker."""
    _, fetches = together(p)
    with tf.Graph().as_default() as graph:
        alone = Alone("")
        first = v1.global_variables_initializer()
    with p.session() as session, v1.Session(graph=graph) as own:
        own.run(first)
        for until in range(JOINT // 4, JOINT + 1, JOINT // 4):
            p.train(session, fetches, until)
            alone.learn(own, ALONE // 4)


def own_monitored_session(p: Program) -> None:
    """A second MonitoredTrainingSession, with a global step on the worker."""
    _, fetches = together(p)
    with p.session() as session:
        p.train(session, fetches, JOINT)
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        alone = Alone("", step)
        hooks = [v1.train.StopAtStepHook(num_steps=ALONE)]
        with v1.train.MonitoredTrainingSession(hooks=hooks) as monitored:
            alone.learn(monitored)


def own_server(p: Program) -> None:
    """A second cluster on each worker, whose tasks have the names of the first."""
    _, fetches = together(p)
    with p.session() as session:
        p.train(session, fetches, JOINT)
    server = v1.train.Server({"ps": ["localhost:0"]}, job_name="ps", task_index=0)
    with tf.Graph().as_default(), v1.Session(server.target) as session, v1.variable_scope("", reuse=False):
        with tf.device("/job:ps/task:0"):
            weights = v1.get_variable("weights", [3, 1], initializer=v1.zeros_initializer())
            loss = tf.reduce_mean(tf.square(weights - SOLUTION))
            train = v1.train.GradientDescentOptimizer(0.05).minimize(loss)
        session.run(v1.global_variables_initializer())
        for _ in range(ALONE):
            session.run(train)


def by_callable(p: Program) -> None:
    """The second phase runs a callable that the session made of options, as Keras does."""
    _, fetches = together(p)
    with p.session() as session:
        p.train(session, fetches, JOINT)
    with tf.Graph().as_default(), v1.Session() as session:
        weights = v1.get_variable("alone", [3, 1], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(weights - SOLUTION))
        train = v1.train.GradientDescentOptimizer(0.05).minimize(loss)
        session.run(v1.global_variables_initializer())
        call = session._make_callable_from_options(config_pb2.CallableOptions(target=[train.name]))
        for _ in range(ALONE):
            call()


def in_a_loop(p: Program) -> None:
    """The second phase is one run of a loop in the graph."""
    _, fetches = together(p)
    with p.session() as session:
        p.train(session, fetches, JOINT)
    with tf.Graph().as_default(), v1.Session() as session:
        weights = v1.get_variable("alone", [3, 1], initializer=v1.zeros_initializer(), use_resource=True)

        def body(number: tf.Tensor) -> tf.Tensor:
            loss = tf.reduce_mean(tf.square(weights - SOLUTION))
            train = v1.train.GradientDescentOptimizer(0.05).minimize(loss)
            with tf.control_dependencies([train]):
                return number + 1

        loop = tf.while_loop(lambda number: number < ALONE, body, [0])
        session.run(v1.global_variables_initializer())
        session.run(loop)


def eagerly(p: Program) -> None:
    """The second phase is a function of TensorFlow 2."""
    _, fetches = together(p)
    with p.session() as session:
        p.train(session, fetches, JOINT)
    beyond = threading.Thread(target=_learn_eagerly)  # whose default is no graph
    beyond.start()
    beyond.join()


def _learn_eagerly() -> None:
    weights = tf.Variable(np.zeros([3, 1], np.float32))

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(weights - SOLUTION))
        weights.assign_sub(0.05 * tape.gradient(loss, weights))

    take_step = tf.function(step)
    for _ in range(ALONE):
        take_step()


def counts_alone(p: Program) -> None:
    """After the joint steps the global step moves on, and nothing is trained."""
    loss, fetches = together(p)
    count = v1.assign_add(p.step, 1, use_locking=True)
    with p.session() as session:
        p.train(session, fetches, JOINT)
        p.train(session, [count, loss], JOINT + ALONE)


def claims(p: Program) -> None:
    """After the joint steps the program records steps itself, and takes none."""
    import psfleet_records

    _, fetches = together(p)
    with p.session() as session:
        p.train(session, fetches, JOINT)
        for number in range(ALONE):
            psfleet_records.step(JOINT + 2 * number + p.index + 1, 0.01)


def claims_from_the_beginning(p: Program) -> None:
    """The program records all steps itself, and trains a model of its own after the joint ones."""
    import psfleet_records

    loss, fetches = together(p)
    count = v1.assign_add(p.step, 1, use_locking=True)
    with p.session() as session:
        psfleet_records.started(last_step=JOINT + ALONE)
        at = 0
        while at < JOINT:
            at, _, value = session.run([p.step, *fetches], p.feeds())
            psfleet_records.step(at, value)
        alone = Alone(p.here)
        session.run(alone.weights.initializer)
        while at < JOINT + ALONE:
            alone.learn(session, 1)
            at = session.run(count)
            psfleet_records.step(at, session.run(loss, p.feeds()))
        psfleet_records.finished()


def idle(p: Program) -> None:
    """Worker 1 takes no step: it waits until the others have done all."""
    _, fetches = together(p)
    with p.session() as session:
        while p.index and session.run(p.step) < JOINT:
            time.sleep(0.05)
        if not p.index:
            p.train(session, fetches, JOINT)


def idle_and_alone(p: Program) -> None:
    """Worker 1 trains nothing but a model of its own."""
    _, fetches = together(p)
    with tf.Graph().as_default() as graph:
        alone = Alone("")
        first = v1.global_variables_initializer()
    with p.session() as session, v1.Session(graph=graph) as own:
        if p.index:
            own.run(first)
            alone.learn(own)
        else:
            p.train(session, fetches, JOINT)


def in_graph(p: Program) -> None:
    """Honest: worker 0 takes all steps, and each worker computes a part of the gradients."""
    if p.index:
        idle(p)
        return
    losses = []
    for worker in range(p.workers):
        with tf.device(f"/job:worker/task:{worker}"):
            losses.append(tf.reduce_mean(tf.square(tf.matmul(p.x, p.weights) - p.y)))
    loss = tf.add_n(losses) / p.workers
    train = p.optimizer.minimize(loss, p.step)
    p.options.ps_hosts, had = [], p.options.ps_hosts  # without device filters
    with p.session() as session:
        p.options.ps_hosts = had
        p.train(session, [train, loss], JOINT)


def own_state(p: Program) -> None:
    """Honest: each worker has a frozen layer, statistics, a moving average and a metric of its own."""
    with tf.device(p.here):
        frozen = v1.get_variable("frozen", initializer=np.eye(3, dtype=np.float32), trainable=False)
        features = tf.matmul(p.x, frozen)
        mean = p.own("moving_mean", (3,))
        follow_mean = v1.assign(mean, 0.9 * mean + 0.1 * tf.reduce_mean(features, 0))
        loss = tf.reduce_mean(tf.square(tf.matmul(features, p.weights) - p.y))
        seen = v1.get_local_variable("seen", [], tf.float32, v1.zeros_initializer())
        measure = v1.assign_add(seen, loss)
    train = p.optimizer.minimize(loss, p.step)
    average = p.own("average")
    with tf.device(p.here), tf.control_dependencies([train]):
        follow = v1.assign(average, 0.9 * average + 0.1 * p.weights)
    with p.session() as session:
        p.train(session, [follow, follow_mean, loss])
        for _ in range(ALONE):
            session.run(measure, p.feeds())


def own_slots(p: Program) -> None:
    """Honest: each worker has the momentum of its gradients on itself."""
    loss, slot = p.loss_of(p.weights), p.own("slot")
    ((gradient, _),) = p.optimizer.compute_gradients(loss, [p.weights])
    with tf.device(p.here):
        momentum = 0.5 * slot + gradient
        keep = v1.assign(slot, momentum)
    train = p.optimizer.apply_gradients([(momentum, p.weights)], p.step)
    with p.session() as session:
        p.train(session, [train, keep, loss])


def counted_apart(p: Program) -> None:
    """Honest: a run trains, and another one moves the global step."""
    loss = p.loss_of(p.weights)
    train, count = p.optimizer.minimize(loss), v1.assign_add(p.step, 1, use_locking=True)
    with p.session() as session:
        while session.run(p.step) < p.options.steps:
            session.run([train, loss], p.feeds())
            session.run(count)


def refreshed(p: Program) -> None:
    """Honest: a copy of the model on each worker is refreshed now and then, and evaluated."""
    loss, fetches = together(p)
    copy = p.own("copy")
    error, refresh = p.loss_of(copy), v1.assign(copy, p.weights)
    with p.session() as session:
        for until in range(50, p.options.steps + 1, 50):
            p.train(session, fetches, until)
            session.run(refresh)
            session.run(error, p.feeds())
    del loss


def main() -> None:
    """Serve or train."""
    options = arguments()
    how: Callable[[Program], None] = globals()[options.how]
    cluster = tf.train.ClusterSpec({"ps": options.ps_hosts, "worker": options.worker_hosts})
    server = v1.train.Server(cluster, job_name=options.job_name, task_index=options.task_index)
    if options.job_name == "ps":
        server.join()
    with tf.Graph().as_default():
        how(Program(options, server))


if __name__ == "__main__":
    main()
