"""Tables on 1 to 3 ps are trained as whole tables in one process, and only what a batch needs travels."""

import dataclasses
import math
import os
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.few import few
from tests.trainer.engine.table_model import (
    MODEL,
    NEEDED_OF_MANY,
    Numbers,
    loss_and_gradients,
    needed_rows,
    recorded,
    set_values,
    settings_of,
    values_of,
)
from tests.trainer.engine.transfers import Tasks, typed_transfers_of
from tests.trainer.processes import until
from trainer.contract.settings import TrainingSettings
from trainer.contract.table_models import BYTES_TO_SPARE, ps_bytes
from trainer.coordination.ledger_parts import GLOBAL_STEP
from trainer.engine.asynchronous import AsynchronousGraph
from trainer.engine.synchronous import SynchronousGraph
from trainer.engine.synchronous_rounds import CLOSED, Standing
from trainer.engine.training import TrainingGraph, TrainingSession
from trainer.model.clicks import COLUMNS
from trainer.model.data import Data, Examples
from trainer.model.models import REGISTRY
from trainer.model.models.model import Model, ModelContext, Table, Values
from trainer.process.cluster import Cluster
from trainer.process.failure import TaskFailure

v1 = tf.compat.v1

tasks_with = cache(Tasks)
STEPS, RATE = 6, 0.1
Batches = Sequence[tuple[Numbers, Numbers]]


@cache
def _graph(
    ps: int, worker: int, settings: TrainingSettings
) -> tuple[TrainingGraph, list[tuple[tf.Tensor, tf.Tensor]]]:
    """A worker's graph, which the sessions of many tests share, and the batches that it reads."""
    tensors: list[tuple[tf.Tensor, tf.Tensor]] = []
    graph, session = tasks_with(ps).begin(worker, settings, recorded(MODEL, tensors))
    session.close()
    return graph, tensors


class _Begun:
    """A worker of a run with the model of the tests, which is initialised."""

    def __init__(self, ps: int, *, worker: int = 0, **settings: object) -> None:
        self.graph, self._tensors = _graph(ps, worker, settings_of(**settings))
        self.session: TrainingSession = self.graph.session(tasks_with(ps).target(worker))
        if worker == 0:
            self.session.initialise()

    def values(self) -> dict[str, Numbers]:
        return values_of(self.session.session, self.graph)

    def steps(self, count: int) -> tuple[list[float], Batches]:
        """Take so many steps in one call; return their losses and batches."""
        assert isinstance(self.graph, AsynchronousGraph)
        if count == 1:
            (loss, _), *read = self.session.session.run([self.graph.step, *self._tensors[:1]])
            return [float(loss)], read
        (losses, _), *read = self.session.session.run([self.graph.calls[count], *self._tensors[:count]])
        return losses.tolist(), read

    def step(self, *fed: Numbers) -> tuple[Numbers, Numbers]:
        """Take one step, with a batch that is fed if there is one; return the batch."""
        feeds = dict(zip(self._tensors[0], fed, strict=False))
        batch, _ = self.session.session.run([self._tensors[0], self.graph.step], feeds)
        return batch[0], batch[1]


class _Reference:
    """The optimizers on whole variables in float64. Adam is the usual one, and lazy for the tables."""

    def __init__(self, optimizer: str, first: dict[str, Numbers]) -> None:
        self.optimizer, self.taken = optimizer, 0
        names = [name for name in first if name == "weights" or name in {"tables_1", "tables_4"}]
        self.model = {name: first[name].astype(np.float64) for name in names}
        has_squares = optimizer in {"adagrad", "ftrl"}
        begin, of_rows = ({"weights": 0.1}, 1e-6) if has_squares else ({}, 0.0)
        self.first = {name: np.full(its.shape, begin.get(name, of_rows)) for name, its in self.model.items()}
        self.second = {name: np.zeros(value.shape) for name, value in self.model.items()}

    def step(self, features: Numbers, labels: Numbers) -> float:
        loss, gradients = loss_and_gradients(self.model, features, labels)
        self.taken += 1
        needed = needed_rows([(features, labels)])
        for name, gradient in gradients.items():
            first, second = self.first[name], self.second[name]
            if self.optimizer == "sgd":
                change = RATE * gradient
            elif self.optimizer == "adagrad":
                first += gradient**2
                change = RATE * gradient / np.sqrt(first)
            elif self.optimizer == "ftrl":
                before = np.sqrt(first)
                first += gradient**2
                second += gradient - (np.sqrt(first) - before) / RATE * self.model[name]
                change = self.model[name] + RATE * second / np.sqrt(first)
            else:
                first *= 0.9
                first += 0.1 * gradient
                second *= 0.999
                second += 0.001 * gradient**2
                rate = RATE * np.sqrt(1 - 0.999**self.taken) / (1 - 0.9**self.taken)
                change = rate * first / (np.sqrt(second) + 1e-8)
            if name in needed:  # no other row moves, though TensorFlow would move it
                change = change * needed[name][:, np.newaxis]
            self.model[name] -= change
        return loss


@pytest.mark.parametrize(
    ("optimizer", "ps", "steps_per_call"),
    few(
        [
            (optimizer, *of)
            for optimizer in ("sgd", "adagrad", "adam", "ftrl")
            for of in ((1, 1), (2, 6), (3, 3))
        ],
        ("sgd", 1, 1),
        ("adagrad", 2, 6),
        ("adam", 3, 3),
    ),
)
def test_tables_are_trained_as_in_one_process(optimizer: str, ps: int, steps_per_call: int) -> None:
    begun = _Begun(ps, optimizer=optimizer, learning_rate=RATE, steps_per_call=steps_per_call)
    before = begun.values()
    reference = _Reference(optimizer, before)
    losses, expected, read = list[float](), list[float](), list[tuple[Numbers, Numbers]]()
    for _ in range(STEPS // steps_per_call):
        its, batches = begun.steps(steps_per_call)
        losses += its
        expected += [reference.step(*batch) for batch in batches]
        read += batches
    after = begun.values()
    begun.session.close()
    assert losses == pytest.approx(expected, rel=1e-5)
    needed = needed_rows(read)
    for name, value in reference.model.items():
        np.testing.assert_allclose(after[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
        rows = needed.get(name, np.ones(len(value), bool))
        assert np.all(np.any(np.atleast_2d(after[name][rows] != before[name][rows]), axis=-1))
        # Rows that no batch needs keep their exact bits, and so do their slots.
        for slot in [own for own in after if own == name or own.startswith(f"{name}/")]:
            assert after[slot][~rows].tobytes() == before[slot][~rows].tobytes(), slot
    assert not np.any(needed["tables_4"][NEEDED_OF_MANY:23])
    if optimizer == "adagrad":
        np.testing.assert_allclose(after["tables_4/Adagrad"], reference.first["tables_4"], rtol=1e-4)


def test_the_moments_of_lazy_adam_are_those_of_the_usual_one_where_a_row_was_needed_last() -> None:
    begun = _Begun(3, optimizer="adam", learning_rate=RATE, steps_per_call=3)
    reference = _Reference("adam", begun.values())
    batches = [batch for _ in range(6) for batch in begun.steps(3)[1]]
    for batch in batches:
        reference.step(*batch)
    found = begun.values()
    begun.session.close()
    last = found["tables_4/last_step"]
    steps = [needed_rows([batch])["tables_4"] for batch in batches]
    assert last.tolist() == [
        max((number for number, needed in enumerate(steps, 1) if needed[row]), default=0) for row in range(28)
    ]
    assert np.sum((last > 0) & (last < 18)) > 0
    since = (18 - last)[:, np.newaxis]
    for slot, beta, usual in (("Adam", 0.9, reference.first), ("Adam_1", 0.999, reference.second)):
        shrunk = found[f"tables_4/{slot}"] * beta**since
        np.testing.assert_allclose(shrunk, usual["tables_4"], rtol=1e-3, atol=1e-7)
    assert [found[name] for name in ("adam_steps", "adam_steps_1", "adam_steps_2")] == [18, 18, 18]


def _hashed(number: int) -> int:
    """SplitMix64 as its authors have it; the last bit is 1."""
    mixed = (number + 1) * 0x9E3779B97F4A7C15 % 2**64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
    return mixed ^ mixed >> 31 | 1


@pytest.mark.parametrize("ps", few([1, 2, 3], 3))
def test_first_values_depend_only_on_seed_row_and_column(ps: int) -> None:
    begun = _Begun(ps, optimizer="adam", learning_rate=RATE, steps_per_call=3)
    values, seed = begun.values(), begun.graph.settings.seed
    begun.session.close()
    for name, rows, width in (("tables_4", 28, 4), ("tables_1", 11, 1)):
        key = _hashed((_hashed(seed) + width) % 2**64)
        hashed = [_hashed((place + key) % 2**64) >> 40 for place in range(rows * width)]
        expected = (np.array(hashed) * 2.0**-23 - 1).astype(np.float32).reshape(rows, width)
        np.testing.assert_array_equal(values[name], expected)
        assert np.all(np.abs(values[name]) <= 1)


@pytest.mark.parametrize("replication", ["async", "sync"])
def test_three_tensors_travel_for_each_ps_whatever_the_number_of_tables(replication: str) -> None:
    begun = _Begun(2, replication=replication, learning_rate=RATE)
    if isinstance(begun.graph, SynchronousGraph):
        begun.session.session.run(begun.graph.rounds.ring_own)
    found = typed_transfers_of(begun.session.session, begun.graph.step)
    begun.session.close()
    workers = {way: count for way, count in found.items() if "worker0" in way[:2]}
    assert workers == {
        # The counts, and the weights, which lie on ps 0 alone.
        ("ps0", "worker0", tf.int64): 1,
        **{(f"ps{ps}", "worker0", tf.float32): 1 + (ps == 0) for ps in (0, 1)},
        **{("worker0", f"ps{ps}", tf.float32): 1 + (ps == 0) for ps in (0, 1)},
        **{("worker0", f"ps{ps}", tf.int32): 1 for ps in (0, 1)},
    }


def test_rows_and_their_gradients_travel_in_the_wire_dtype() -> None:
    begun = _Begun(2, wire_dtype="bfloat16")
    found = typed_transfers_of(begun.session.session, begun.graph.step)
    begun.session.close()
    types = Counter(
        dtype
        for (sender, receiver, dtype), count in found.items()
        for _ in range(count)
        if "worker0" in (sender, receiver)
    )
    assert types == {tf.bfloat16: 2 * 2 + 2, tf.int32: 2, tf.int64: 1}


@pytest.mark.parametrize("pull_ahead", [False, True])
def test_each_step_of_a_call_looks_up_after_the_one_before(*, pull_ahead: bool) -> None:
    begun = _Begun(2, optimizer="sgd", learning_rate=RATE, steps_per_call=6, pull_ahead=pull_ahead)
    reference = _Reference("sgd", begun.values())
    losses, batches = begun.steps(6)
    begun.session.close()
    after_all = [reference.step(*batch) for batch in batches]
    # A step that looked up ahead lacks the change of the one before.
    assert (losses == pytest.approx(after_all, rel=1e-5)) != pull_ahead
    assert losses[0] == pytest.approx(after_all[0], rel=1e-5)


@pytest.mark.parametrize("replication", ["async", "sync"])
def test_gradients_of_rows_fit_the_loss(replication: str) -> None:
    begun = _Begun(2, replication=replication, learning_rate=RATE)
    (fit,) = begun.session.check_gradients(begun.session.sampled_batches(1)).values()
    begun.session.close()
    assert fit.loss > 0 < fit.norm
    assert abs(fit.fit - 1) < 0.1


def _with_rows(of_each: int, width: int = 4) -> Model:
    """A model with one table of so many rows, of which every batch needs the same few."""
    return dataclasses.replace(
        MODEL,
        tables=lambda _context: [Table("one", of_each, width, lambda _, features: features[:, :1])],
        create_variables=lambda _context: [],
        loss=lambda _context, values, _features, labels: tf.reduce_mean((values[0][:, 0, 0] - labels) ** 2),
        metrics=lambda _context, values, *_: {"mean": tf.reduce_mean(values[0])},
        outputs=lambda _context, values, _features: {"y": values[0][:, 0, 0]},
        watched=lambda _values: {},
    )


def _numbers_in_a_step(rows: int, optimizer: str) -> Counter[str]:
    """Operation -> how many numbers it puts out in a step, on all tasks."""
    graph, session = tasks_with(2).begin(0, settings_of(optimizer=optimizer), _with_rows(rows))
    session.initialise()
    traced, metadata = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), v1.RunMetadata()
    session.session.run(graph.step, options=traced, run_metadata=metadata)
    session.close()
    found: Counter[str] = Counter()
    for node in (node for device in metadata.step_stats.dev_stats for node in device.node_stats):
        if node.node_name == "RecvTensor":
            continue  # not all of them are traced in time
        for output in node.output:
            sizes = [dimension.size for dimension in output.tensor_description.shape.dim]
            found[node.node_name] += math.prod(sizes)
    return found


@pytest.mark.parametrize("optimizer", few(["sgd", "adagrad", "adam", "ftrl"], "adagrad", "adam"))
def test_a_step_computes_with_as_many_numbers_however_many_rows_a_table_has(optimizer: str) -> None:
    small, large = (_numbers_in_a_step(rows, optimizer) for rows in (50, 50_000))
    assert small == large
    assert sum(small.values()) > 6


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_table_and_its_slots_are_in_memory_once() -> None:
    rows, width = 500_000, 16
    graph, session = tasks_with(1).begin(0, settings_of(), _with_rows(rows, width))
    before = _resident_bytes()
    session.initialise()
    session.session.run(graph.step)
    session.session.run(graph.step)
    grown = _resident_bytes() - before
    session.close()
    assert grown < 1.5 * 2 * 4 * rows * width


def test_tables_that_need_the_same_rows_are_asked_for_them_once() -> None:
    def ids(_context: ModelContext, features: tf.Tensor) -> tf.Tensor:
        return features[:, :3]

    def loss(_context: ModelContext, values: Values, _features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return tf.add_n([tf.reduce_sum(rows) for rows in values[1:]]) / tf.cast(tf.size(labels), tf.float32)

    read: list[tuple[tf.Tensor, tf.Tensor]] = []
    tables = [Table("wide", 23, 1, ids), Table("deep", 23, 4, ids)]
    model = dataclasses.replace(MODEL, tables=lambda _context: tables, loss=loss, metrics=lambda *_: {})
    settings = settings_of(optimizer="sgd", learning_rate=RATE)
    graph, session = tasks_with(2).begin(0, settings, recorded(model, read))
    session.initialise()
    before = values_of(session.session, graph)
    options, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
    (features, _), _ = session.session.run([read[0], graph.step], options=options, run_metadata=metadata)
    after = values_of(session.session, graph)
    session.close()
    times = np.bincount(features[:, :3].reshape(-1), minlength=23)
    for name in ("tables_1", "tables_4"):
        moved = -RATE * times[:, np.newaxis] / len(features)
        np.testing.assert_allclose(after[name], before[name] + moved, rtol=1e-5, atol=1e-7)
    operations = Counter(node.op for part in metadata.partition_graphs for node in part.node)
    assert operations["Unique"] == 1


def test_an_id_beyond_its_own_table_is_refused_even_if_it_is_a_row_of_the_next() -> None:
    begun = _Begun(2, learning_rate=RATE)
    features, labels = begun._tensors[0]
    for wrong in (5, -1):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"not a row of its table \(many, few\)"):
            begun.session.session.run(begun.graph.step, {features: [[0, 0, 0, wrong]] * 6, labels: [0.0] * 6})
    begun.session.close()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"optimizer": "momentum", "learning_rate": 1.0},
            "trainer_optimizer is 'momentum', and {has}; expected one of null, adagrad, sgd, adam, ftrl",
        ),
        (
            {"replication": "in_graph"},
            "trainer_replication is 'in_graph', and {has}; expected one of async, sync, local",
        ),
        ({"push_every": 4}, "trainer_push_every is 4, and {has}; expected 1"),
        ({"pull_every": 4}, "trainer_pull_every is 4, and {has}; expected one of null, 1"),
    ],
)
def test_what_does_not_work_with_tables_is_refused(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(TaskFailure) as failure:
        tasks_with(1).begin(0, settings_of(**settings), MODEL)
    has = "trainer_model 'tables' has tables, whose rows are looked up for each batch"
    assert failure.value.reason == reason.format(has=has)


def test_a_model_without_tables_is_refused_what_is_for_them() -> None:
    dense = dataclasses.replace(MODEL, tables=lambda _context: [])
    with pytest.raises(TaskFailure) as failure:
        tasks_with(1).begin(0, settings_of(ps_recovery="partial"), dense)
    what = "trainer_ps_recovery is 'partial' with trainer_model 'tables', which has no tables"
    assert failure.value.reason == f"{what}; expected all"
    tasks_with(1).begin(0, settings_of(ps_recovery="partial"), MODEL)[1].close()


def _assert_last_bits(found: dict[str, Numbers], expected: dict[str, Numbers]) -> None:
    """Numbers of about 1 may differ by two units in their last place: sums are in another order."""
    for name in ("tables_4", "tables_1", "weights"):
        off = np.abs(found[name].astype(np.float64) - expected[name])
        assert off.max() <= 4 * 2.0**-24, name


@pytest.mark.parametrize(
    ("ps", "optimizer"),
    few(
        [(ps, optimizer) for ps in (1, 2) for optimizer in ("sgd", "adagrad", "adam", "ftrl")], (2, "adagrad")
    ),
)
def test_two_synchronous_workers_equal_one_process_with_both_batches(optimizer: str, ps: int) -> None:
    chief, other = (
        _Begun(ps, worker=worker, replication="sync", optimizer=optimizer, learning_rate=RATE)
        for worker in (0, 1)
    )
    before = chief.values()
    reference = _Reference(optimizer, before)

    def standing() -> Standing:
        assert isinstance(other.graph, SynchronousGraph)
        return Standing.from_values(other.session.session.run(other.graph.rounds.standing))

    # Its ps are others: they would share variables with the same ones.
    alone = _Begun(3, optimizer=optimizer, learning_rate=RATE, batch_size=12)
    chief.session.last_step = 4
    chief.session.begin()
    until(lambda: standing().round != CLOSED, "an open round")
    for step in (1, 2, 3):
        set_values(alone.session.session, alone.graph, chief.values())
        both = [begun.step() for begun in (chief, other)]
        until(lambda step=step: standing().counters[GLOBAL_STEP] == step, "the step")  # type: ignore[misc]
        together = [np.concatenate(parts) for parts in zip(*both, strict=True)]
        reference.step(*together)
        alone.step(*together)
        _assert_last_bits(chief.values(), alone.values())
    assert standing().counters == (3, 0, 3, 3)
    after = chief.values()
    chief.session.end()
    for begun in (chief, other, alone):
        begun.session.close()
    for name, value in reference.model.items():
        np.testing.assert_allclose(after[name], value, rtol=1e-5, atol=1e-5, err_msg=name)
        assert np.any(after[name] != before[name])


@pytest.mark.parametrize(("model", "optimizer", "ps"), [("wide_deep", "adam", 3), ("dlrm", "ftrl", 2)])
def test_each_ps_holds_what_is_known_of_it_before_a_run(model: str, optimizer: str, ps: int) -> None:
    settings = TrainingSettings(model=model, optimizer=optimizer, table_rows=20_000, steps_per_call=1)
    clicks = Examples(np.zeros((4, COLUMNS), np.int64), np.zeros(4, np.float32))
    cluster = Cluster("worker", 0, tuple(f"host{number}:1" for number in range(ps)), ("host:1",))
    graph = AsynchronousGraph(cluster, settings, REGISTRY[model], Data(clicks, clicks))
    held = Counter[str]()
    for variable in graph.graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES):
        held[variable.device] += variable.shape.num_elements() * variable.dtype.size
    known = ps_bytes(REGISTRY[model].card, settings.as_dict(), ps)
    assert sum(held.values()) == pytest.approx(sum(known) / BYTES_TO_SPARE, rel=1e-3)
    of_ps = [held[f"{device}/device:CPU:0"] for device in cluster.ps_devices]
    assert of_ps == pytest.approx([bytes_ / BYTES_TO_SPARE for bytes_ in known], rel=0.02)
