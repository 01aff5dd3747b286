"""Several batches to a push and to a pull: what is computed, what travels, and what is counted."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from tests.few import few
from tests.trainer.engine.transfers import Tasks, transfers_of, typed_transfers_of
from trainer.contract.exit_codes import CONFIGURATION
from trainer.contract.model_card import OPTIMIZERS
from trainer.contract.settings import TrainingSettings
from trainer.contract.step_windows import Read
from trainer.coordination.ledger_parts import FIRST_WORKER
from trainer.engine.asynchronous import AsynchronousGraph
from trainer.engine.local_steps import take_local_steps
from trainer.engine.optimizers import Optimizers
from trainer.engine.tables.optimizers import Rates
from trainer.engine.training import StepResult, TrainingSession
from trainer.model.data import batches
from trainer.model.models import REGISTRY
from trainer.process.failure import TaskFailure

v1 = tf.compat.v1

tasks_with = cache(Tasks)
BATCHES = 24
Numbers = npt.NDArray[Any]


def _taken(session: TrainingSession, steps: int) -> list[StepResult]:
    taken: list[StepResult] = []
    while len(taken) < steps:
        taken += session.steps(steps - len(taken), lambda: None)
    return taken


def _trained(
    settings: TrainingSettings, ps: int = 1
) -> tuple[list[StepResult], list[Numbers], list[Numbers]]:
    """The steps of a single worker over `BATCHES`, and the model's variables before and after them."""
    graph, session = tasks_with(ps).begin(0, settings)
    session.initialise()
    with graph.graph.as_default():
        values = graph.model.values_of(graph.model_variables)
    before = session.session.run(values)
    taken = _taken(session, BATCHES // settings.push_every)
    after = session.session.run(values)
    session.close()
    return taken, before, after


def _batches_of_a_line(settings: TrainingSettings) -> list[tuple[Numbers, Numbers]]:
    data = REGISTRY["linear"].load(settings, 2)
    with tf.Graph().as_default(), v1.Session() as session:
        dataset, feeds = batches(data.train, settings.batch_size, settings.seed)
        iterator = v1.data.make_initializable_iterator(dataset)
        following = iterator.get_next()
        session.run(iterator.initializer, feeds)
        return [session.run(following) for _ in range(BATCHES)]


class _Reference:
    """The optimizers as the trainer has them, for a step that stands for several batches, in NumPy."""

    def __init__(self, name: str, rate: float, count: int) -> None:
        self.name, self.rate, self.count, self.steps = name, rate, count, 0
        self.first: Numbers = np.full(2, 0.1 / count if name in {"adagrad", "ftrl"} else 0.0)
        self.second: Numbers = np.zeros(2)

    def change(self, gradient: Numbers, model: Numbers, /) -> Numbers:
        """Return what a step adds to the parameters, of which `model` has the values."""
        n, rate = self.count, self.rate
        self.steps += 1
        if self.name == "sgd":
            return np.asarray(-rate * n * gradient)
        if self.name == "momentum":
            self.first = 0.9**n * self.first + gradient
            return np.asarray(-rate * n * (1 - 0.9**n) / (1 - 0.9) * self.first)
        if self.name == "adagrad":
            self.first = self.first + gradient**2
            return np.asarray(-rate * np.sqrt(n) * gradient / np.sqrt(self.first))
        if self.name == "ftrl":
            before, self.first = self.first, self.first + gradient**2
            moved = (np.sqrt(self.first) - np.sqrt(before)) / (rate * np.sqrt(n)) * model
            self.second = self.second + gradient - moved
            return np.asarray(-self.second * rate * np.sqrt(n) / np.sqrt(self.first) - model)
        first, second = 0.9**n, 0.999**n
        self.first = first * self.first + (1 - first) * gradient
        self.second = second * self.second + (1 - second) * gradient**2
        corrected = rate * n * np.sqrt(1 - second**self.steps) / (1 - first**self.steps)
        return np.asarray(-corrected * self.first / (np.sqrt(self.second) + 1e-8))

    def local_change(self, gradient: Numbers) -> Numbers:
        """Return what a worker's own step adds to its copy."""
        rates = {"sgd": self.rate, "momentum": 10 * self.rate, "adagrad": self.rate / np.sqrt(0.1)}
        rates["ftrl"] = rates["adagrad"]
        if self.name in rates:
            return np.asarray(-rates[self.name] * gradient)
        return -self.rate * np.sign(gradient)  # each parameter of a line is a variable of its own


class _Damped(_Reference):
    """The same with damped steps: four fifths of each are along the mean of the past gradients."""

    def change(self, gradient: Numbers, _model: Numbers, /) -> Numbers:
        """Return what a step adds to the parameters."""
        n, long, second = self.count, 0.99**self.count, 0.999**self.count
        self.steps += 1
        self.first = long * self.first + (1 - long) * gradient
        if self.name == "momentum":
            return np.asarray(-10 * self.rate * n * (0.8 * self.first + 0.2 * gradient))
        self.second = second * self.second + (1 - second) * gradient**2
        along = 0.8 * self.first / (1 - long**self.steps) + 0.2 * gradient
        corrected = self.rate * n * np.sqrt(1 - second**self.steps)
        return np.asarray(-corrected * along / (np.sqrt(self.second) + 1e-8))


@pytest.mark.parametrize(
    ("optimizer", "staleness", "push_every", "pull_every"),
    few(
        [
            (*of, *every)
            for of in [*((name, "plain") for name in OPTIMIZERS), ("momentum", "damped"), ("adam", "damped")]
            for every in [(1, None), (4, None), (4, 12)]
        ],
        ("sgd", "plain", 4, None),
        ("adagrad", "plain", 4, 12),
        ("momentum", "plain", 4, 12),
        ("adam", "plain", 4, 12),
        ("ftrl", "plain", 4, 12),
        ("momentum", "damped", 1, None),
        ("adam", "damped", 4, 12),
    ),
)
def test_a_push_applies_the_gradients_of_all_its_batches(
    optimizer: str, staleness: str, push_every: int, pull_every: int | None
) -> None:
    settings = TrainingSettings(
        model="linear",
        optimizer=optimizer,
        staleness=staleness,
        learning_rate=0.02,
        push_every=push_every,
        pull_every=pull_every,
        steps_per_call=12,
    )
    taken, before, after = _trained(settings)
    model: Numbers = np.array(before, np.float64)
    mean: Numbers = np.zeros(2)
    kind = _Damped if staleness == "damped" else _Reference
    reference, local, losses = kind(optimizer, 0.02, push_every), model, list[float]()
    for number, (x, y) in enumerate(_batches_of_a_line(settings)):
        if number % (pull_every or push_every) == 0:
            local = model
        error = local[0] * x + local[1] - y
        gradient = np.array([2 * np.mean(error * x), 2 * np.mean(error)])
        losses.append(float(np.mean(error**2)))
        mean = mean + gradient / push_every
        local = local + reference.local_change(gradient)
        if (number + 1) % push_every == 0:
            model, mean = model + reference.change(mean, model), np.zeros(2)
    expected = np.reshape(losses, (-1, push_every)).mean(axis=1)
    np.testing.assert_allclose([step.loss for step in taken], expected, rtol=2e-5)
    np.testing.assert_allclose(after, model, rtol=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "ftrl"])
def test_an_optimizer_without_momentum_has_no_damped_steps(optimizer: str) -> None:
    with pytest.raises(TaskFailure) as failure:
        Optimizers(optimizer, Rates(0.02), damped=True)
    assert failure.value.code == CONFIGURATION
    assert failure.value.reason == (
        f"trainer_staleness (--staleness) is damped with the optimizer {optimizer}; "
        "expected plain, or trainer_optimizer (--optimizer) momentum or adam"
    )


def test_damped_steps_transfer_no_further_tensor() -> None:
    settings = TrainingSettings(optimizer="adam", staleness="damped", steps_per_call=1)
    graph, session = tasks_with(1).begin(0, settings)
    session.initialise()
    assert transfers_of(session.session, graph.step) == {("ps0", "worker0"): 1 + 1, ("worker0", "ps0"): 1}
    session.close()


@pytest.mark.parametrize(
    ("push_every", "pull_every", "ps"),
    [pytest.param(4, None, 1, marks=pytest.mark.chaos), (4, 8, 1), (2, 24, 2)],
)
def test_with_sgd_a_single_worker_learns_as_if_it_pushed_each_batch(
    push_every: int, pull_every: int | None, ps: int
) -> None:
    rare = TrainingSettings(optimizer="sgd", push_every=push_every, pull_every=pull_every)
    taken, _, found = _trained(rare, ps)
    each, before, expected = _trained(TrainingSettings(optimizer="sgd", steps_per_call=1), ps)
    of_each = np.reshape([step.loss for step in each], (-1, push_every)).mean(axis=1)
    np.testing.assert_allclose([step.loss for step in taken], of_each, rtol=1e-4)
    for own, other, first in zip(found, expected, before, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-6)
        assert np.abs(other - first).max() > 0.01


@pytest.mark.parametrize("replication", ["async", "in_graph"])
def test_a_step_of_several_batches_transfers_what_a_step_of_one_does(replication: str) -> None:
    found = []
    for push_every in (1, 4):
        settings = TrainingSettings(replication=replication, push_every=push_every, steps_per_call=1)
        graph, session = tasks_with(1).begin(0, settings)
        session.initialise()
        found.append(transfers_of(session.session, graph.step))
        session.close()
    assert found[0] == found[1]


def test_several_pushes_share_a_pull_and_its_bfloat16() -> None:
    settings = TrainingSettings(push_every=2, pull_every=10, wire_dtype="bfloat16")
    graph, session = tasks_with(1).begin(0, settings)
    assert isinstance(graph, AsynchronousGraph)
    assert set(graph.calls) == {2, 5}
    session.initialise()
    found = typed_transfers_of(session.session, graph.calls[5])
    session.close()
    of_parameters = {way: count for way, count in found.items() if way[-1] == tf.bfloat16}
    assert of_parameters == Counter({("ps0", "worker0", tf.bfloat16): 1, ("worker0", "ps0", tf.bfloat16): 5})


def test_a_call_without_rare_pushes_has_no_local_steps() -> None:
    graph, session = tasks_with(1).begin(0, TrainingSettings(pull_every=1, steps_per_call=2))
    session.close()
    names = [operation.name for operation in graph.graph.get_operations()]
    assert not [name for name in names if "local_step" in name]


def test_the_steps_of_others_that_each_push_missed_are_exact_with_two_workers() -> None:
    settings = TrainingSettings(model="linear", push_every=2, pull_every=6, steps_per_call=12)
    sessions = [tasks_with(1).begin(worker, settings)[1] for worker in (0, 1)]
    sessions[0].initialise()
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda session: [session.steps(6, lambda: None) for _ in range(20)], sessions))
    for session in sessions:
        session.close()
    for worker, calls in enumerate(both):
        others = FIRST_WORKER + 1 - worker
        number = of_others = 0
        for step in (step for call in calls for step in call):
            read, own = step.read or Read(-1, -1), number % 3
            assert read.own_steps_since == own
            if own == 0:
                # Read after the last step of the call before, and before the step's own count.
                seen = read.global_step - number
                assert of_others <= seen <= step.counters[others]
            assert read.global_step == seen + number - own
            of_others, number = step.counters[others], number + 1
            assert step.counters[FIRST_WORKER + worker] == number


def test_rows_of_a_table_stay_rows_in_the_sum() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        table = tf.constant(np.zeros((5, 2), np.float32))
        unused = tf.constant(1.0)
        rows = [(tf.constant([0, 3]), tf.constant(1.0)), (tf.constant([3, 4]), tf.constant(3.0))]

        def loss(values: object, batch: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
            assert isinstance(values, list)
            return batch[1] * tf.reduce_sum(tf.gather(values[0], batch[0]))

        steps = take_local_steps(loss, lambda values, _: values, [table, unused], rows, 2.0)
        gradient, nothing = steps.gradients
        assert nothing is None
        assert isinstance(gradient, tf.IndexedSlices)
        dense = session.run(tf.convert_to_tensor(gradient))
    np.testing.assert_array_equal(dense, [[1, 1], [0, 0], [0, 0], [4, 4], [3, 3]])
