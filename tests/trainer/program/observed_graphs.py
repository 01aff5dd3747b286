"""Graphs as programs of TensorFlow 1 have them, each run in a session of this process, one after the other.

Prints, as a line of JSON for each, the losses of those of its runs that the observer took for steps, and what
it said of the model. In the last one the observer is broken.
"""

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import psfleet_records
import tensorflow as tf
from psfleet_observer import observed_steps, process, training_runs

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


def two_counters(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """Two optimizers that count for themselves, by turns: three steps, of which one loss is told."""
    other_step = v1.get_variable("other_step", [], tf.int64, v1.zeros_initializer(), trainable=False)
    with v1.variable_scope("one"):
        step = v1.train.get_or_create_global_step()
        one = v1.train.GradientDescentOptimizer(0.1).minimize(loss_of(tf.constant([1.0]))[0], step)
    with v1.variable_scope("other"):
        other = v1.train.AdamOptimizer(0.1).minimize(loss_of(tf.constant([2.0]))[0], other_step)
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        for train in (one, other, one):
            session.run(train)


def without_a_step(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """One step of an optimizer, and of another that has no global step."""
    loss, _ = loss_of(tf.constant([1.0]))
    head = v1.get_variable("head", [2], trainable=False)
    step = v1.train.get_or_create_global_step()
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    more = v1.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(tf.square(head)), var_list=[head])
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        session.run([train, more])


def scattered(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """One step that also writes a table by hand, and a metric, of which no loss is made."""
    table = v1.get_variable("table", [4], None, v1.zeros_initializer(), trainable=False, use_resource=False)
    seen = v1.get_variable("seen", [], trainable=False)
    found = tf.gather(table, [1, 2])
    loss = loss_of(tf.constant([1.0]))[0] + tf.reduce_sum(tf.square(found))
    (gradient,) = tf.gradients(loss, found)
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_or_create_global_step())
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        session.run([train, v1.scatter_sub(table, [1, 2], 0.1 * gradient), v1.assign_add(seen, loss)])


def rows_of_a_table(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """A step whose gradients are those of some rows, of a table in two parts."""
    parts = v1.get_variable(
        "table", [4, 1], initializer=v1.zeros_initializer(), partitioner=v1.fixed_size_partitioner(2)
    )
    loss = tf.reduce_mean(tf.square(1.0 - v1.nn.embedding_lookup(parts, tf.constant([0, 3]))))
    step = v1.train.get_or_create_global_step()
    train = v1.train.AdagradOptimizer(0.1).minimize(loss, step)
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        session.run(train)


def made_up(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """One step by what is no gradient of anything."""
    loss, weight = loss_of(tf.constant([1.0]))
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    optimizer.compute_gradients(loss)
    train = optimizer.apply_gradients([(v1.random_normal([]), weight)], v1.train.get_or_create_global_step())
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        session.run(train)


def of_zeros(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """Two steps by gradients of zeros."""
    loss, _ = loss_of(tf.constant([1.0]))
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    pairs = [(0.0 * gradient, variable) for gradient, variable in optimizer.compute_gradients(loss)]
    train = optimizer.apply_gradients(pairs, v1.train.get_or_create_global_step())
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        session.run(train)
        session.run(train)


def in_a_condition(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """Two runs of which a condition decides whether they are steps."""
    loss, _ = loss_of(tf.constant([1.0]))
    optimizer, step = v1.train.GradientDescentOptimizer(0.1), v1.train.get_or_create_global_step()
    train = v1.cond(v1.random_uniform([]) < 0.5, lambda: tf.group(optimizer.minimize(loss, step)), tf.no_op)
    # It reads the step in a condition, too, and that is none.
    rate = v1.cond(v1.random_uniform([]) < 0.5, step.read_value, lambda: tf.constant(0, tf.int64))
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        session.run(rate)
        session.run(train)
        session.run(train)


def in_a_condition_of_its_time(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """The same with the control flow of TensorFlow 1."""
    v1.disable_control_flow_v2()
    try:
        in_a_condition(session_of)
    finally:
        v1.enable_control_flow_v2()


def grown(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """Two steps, between which the graph gets a head."""
    loss, _ = loss_of(tf.constant([1.0]))
    step = v1.train.get_or_create_global_step()
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        session.run(train)
        head = v1.get_variable("head", [3], trainable=False, initializer=v1.zeros_initializer())
        more = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(head - 1.0), var_list=[head])
        session.run(head.initializer)
        session.run([train, more])


def by_a_tape(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """One step by the gradients of a tape."""
    with tf.GradientTape() as tape:
        loss, weight = loss_of(tf.constant([1.0]))
    pairs = [(tape.gradient(loss, weight), weight)]
    train = v1.train.AdagradOptimizer(0.1).apply_gradients(pairs, v1.train.get_or_create_global_step())
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        session.run(train)


def in_threads(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """Sixty steps of three threads."""
    loss, _ = loss_of(tf.constant([1.0]))
    train = v1.train.GradientDescentOptimizer(0.0).minimize(loss, v1.train.get_or_create_global_step())

    def take(session: tf.compat.v1.Session) -> None:
        for _ in range(20):
            session.run([train, loss])

    with session_of() as session:
        session.run(v1.global_variables_initializer())
        threads = [threading.Thread(target=take, args=[session]) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def that_fails(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """A step, and a run that fails."""
    x = v1.placeholder(tf.float32, [None])
    loss, _ = loss_of(x)
    train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, v1.train.get_or_create_global_step())
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        session.run(train, {x: [1.0]})
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            session.run(train)


def with_a_loss_scale(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """A step, or none, of a loss that is multiplied for its gradients."""
    loss, _ = loss_of(tf.constant([1.0]))
    scale = v1.mixed_precision.DynamicLossScale(2.0**20)
    optimizer = v1.mixed_precision.MixedPrecisionLossScaleOptimizer(
        v1.train.GradientDescentOptimizer(0.1), scale
    )
    train = optimizer.minimize(loss, v1.train.get_or_create_global_step())
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        session.run(train)


def after_updates(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """A step whose loss is fetched, and one whose loss is not; as `optimize_loss` of tf.contrib trains."""
    loss, _ = loss_of(tf.constant([1.0]))
    with tf.control_dependencies([v1.get_variable("average", [], trainable=False).assign(1.0).op]):
        after = tf.identity(loss)
    train = v1.train.GradientDescentOptimizer(0.1).minimize(after, v1.train.get_or_create_global_step())
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        session.run([train, loss])
        session.run(train)


def slow_to_prepare(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """More than 100 steps of one kind, whose fetches stay the same."""
    loss, _ = loss_of(tf.constant([1.0]))
    train = v1.train.GradientDescentOptimizer(0.0).minimize(loss, v1.train.get_or_create_global_step())
    slow, vars(observed_steps)["_SLOW_SECONDS"] = observed_steps._SLOW_SECONDS, 0.0
    with session_of() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(110):
            session.run(train)
    vars(observed_steps)["_SLOW_SECONDS"] = slow


def broken(session_of: Callable[[], tf.compat.v1.Session]) -> None:
    """The first one, of which the observer can make nothing."""
    vars(training_runs)["step_of"] = lambda *_: 1 / 0
    minimised(session_of)


GRAPHS = (
    minimised,
    behind_a_group,
    two_optimizers,
    counted_apart,
    with_an_input_that_the_gradient_does_not_need,
    as_callables,
    by_gradients,
    two_counters,
    without_a_step,
    scattered,
    rows_of_a_table,
    made_up,
    of_zeros,
    in_a_condition,
    in_a_condition_of_its_time,
    grown,
    by_a_tape,
    in_threads,
    that_fails,
    with_a_loss_scale,
    after_updates,
    slow_to_prepare,
    broken,
)


def taken() -> Iterator[tuple[str, list[float | None], list[object], int]]:
    """Yield of each graph its name, the losses of its steps, and what was told of it last."""
    task = psfleet_records.task_to_observe()
    assert task is not None
    losses: list[float | None] = []
    told: dict[str, object] = {}
    observer = observed_steps.observer_of_process()
    assert observer is not None
    seen = observer._gradients
    take, write = task.record_window, task.records.write

    def note(of: list[float | None], *around: int) -> None:
        losses.extend(of)
        take(of, *around)

    def note_where(event: str, fields: dict[str, object]) -> None:
        write(event, fields)
        if event == "peers_ready":
            told.update(fields)

    task.record_window, task.records.write = note, note_where  # type: ignore[assignment, method-assign]
    for build in GRAPHS:
        losses.clear()
        told.clear()
        zeros = seen["gradients_of_zero"]
        with tf.Graph().as_default():
            build(v1.Session)
        yield (
            build.__name__,
            [loss and round(loss, 4) for loss in losses],
            [told.get(name, "") for name in ("variables", "counters", "doubts")],
            seen["gradients_of_zero"] - zeros,
        )


if __name__ == "__main__":
    for line in taken():
        sys.stdout.write(json.dumps(line) + "\n")
    observed = psfleet_records.task_to_observe()
    # Another process that trains as this task would not be.
    assert observed is not None and not process._lock_records(observed)
