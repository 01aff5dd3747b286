"""Graphs as programs of TensorFlow 1 have them, each run in a session of this process, one after the other.

Prints, as a line of JSON for each, how many of its runs the observer took for steps, and their losses. In the
last one the observer is broken.
"""

import json
import sys
from collections.abc import Callable, Iterator

import numpy as np
import psfleet_records
import tensorflow as tf
from psfleet_observer import graphs, process

v1 = tf.compat.v1


def loss_of(x: tf.Tensor) -> tuple[tf.Tensor, tf.Variable]:
    """The mean square of the distance of a variable from x [n]."""
    weight = v1.get_variable("weight", [], initializer=v1.zeros_initializer())
    return tf.reduce_mean(tf.square(x - weight)), weight


def minimised(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """Three steps whose loss is not fetched, two runs that are none."""
    x = v1.placeholder(tf.float32, [None])
    loss, weight = loss_of(x)
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_or_create_global_step())
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train, {x: [1.0]})
        session.run([loss, weight], {x: [1.0]})


def behind_a_group(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """Two steps of what waits for the optimizer, one of it alone."""
    loss, weight = loss_of(tf.constant([1.0]))
    optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
    pairs = [(tf.clip_by_value(g, -1.0, 1.0), v) for g, v in optimizer.compute_gradients(loss)]
    applied = optimizer.apply_gradients(pairs, global_step=v1.train.get_or_create_global_step())
    average = tf.train.ExponentialMovingAverage(0.9)
    with tf.control_dependencies([applied]):
        train = tf.group(average.apply([weight]))
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        session.run([train, loss])
        session.run(train)
        session.run(applied)


def two_optimizers(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """A run that moves the global step twice, and one that moves it once."""
    step = v1.train.get_or_create_global_step()
    with v1.variable_scope("one"):
        one = v1.train.AdamOptimizer(0.1).minimize(loss_of(tf.constant([1.0]))[0], step)
    with v1.variable_scope("other"):
        other = v1.train.AdamOptimizer(0.1).minimize(loss_of(tf.constant([2.0]))[0], step)
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        session.run([one, other])
        session.run(other)


def counted_apart(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """One step of a program that counts for itself; the optimizer alone moves no global step."""
    loss, _ = loss_of(tf.constant([1.0]))
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    step = v1.get_variable("global_step", [], tf.int64, v1.zeros_initializer(), trainable=False)
    count = v1.assign_add(step, 1)
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        session.run([train, count])
        session.run(train)


def with_an_input_that_the_gradient_does_not_need(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """Two steps whose loss cannot be computed: the program does not feed all of it."""
    x, extra = v1.placeholder(tf.float32, [None]), v1.placeholder(tf.float32, [])
    loss, _ = loss_of(x)
    step = v1.train.get_or_create_global_step()
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss + extra, step)
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(2):
            session.run(train, {x: [1.0]})


def as_callables(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """Four steps: two without feeds, two with."""
    x = v1.placeholder_with_default(tf.constant([1.0]), [None])
    loss, _ = loss_of(x)
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_or_create_global_step())
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        plain, fed = session.make_callable([train, loss]), session.make_callable(train, [x])
        for _ in range(2):
            plain()
            fed(np.array([2.0], np.float32))


def by_gradients(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """One step whose gradients the program asks for itself, with variables as TensorFlow 1 had them."""
    with v1.variable_scope("", use_resource=False):
        loss, weight = loss_of(tf.constant([1.0]))
        step = v1.get_variable("global_step", [], tf.int64, v1.zeros_initializer(), trainable=False)
    (gradient,) = tf.gradients(loss, [weight])
    train = v1.train.AdagradOptimizer(0.1).apply_gradients([(gradient, weight)], step)
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        session.run(train)


def broken(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """The first one, of which the observer can make nothing."""
    vars(graphs)["step_of"] = lambda *_: 1 / 0
    minimised(session_of)


GRAPHS = (
    minimised,
    behind_a_group,
    two_optimizers,
    counted_apart,
    with_an_input_that_the_gradient_does_not_need,
    as_callables,
    by_gradients,
    broken,
)


def taken() -> Iterator[tuple[str, int, list[float | None]]]:
    """Yield of each graph its name, its steps and their losses."""
    task = psfleet_records.task_to_observe()
    assert task is not None
    losses: list[float | None] = []
    take = task.take

    def note(of: list[float | None], before: int, after: int) -> None:
        losses.extend(of)
        take(of, before, after)

    task.take = note  # type: ignore[assignment, method-assign]
    for build in GRAPHS:
        losses.clear()
        with tf.Graph().as_default():
            build(v1.Session)
        yield build.__name__, len(losses), [loss and round(loss, 4) for loss in losses]


if __name__ == "__main__":
    for line in taken():
        sys.stdout.write(json.dumps(line) + "\n")
    observed = psfleet_records.task_to_observe()
    # Another process that trains as this task would not be.
    assert observed is not None and not process._alone(observed)
