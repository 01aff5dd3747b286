"""The partition model: workers that share learn every part, a worker alone only its own."""

import numpy as np
import pytest
import tensorflow as tf

from tests.few import few
from tests.trainer.ports import free_ports
from tests.trainer.processes import Cluster
from trainer import evaluator
from trainer.contract.exit_codes import FINISHED
from trainer.contract.records import events_file, read_records
from trainer.contract.settings import TrainingSettings
from trainer.engine.asynchronous import AsynchronousGraph
from trainer.model.data import Data, Examples
from trainer.model.models import REGISTRY, partition
from trainer.model.models.model import Devices, ModelContext
from trainer.process import cluster as task_cluster

v1 = tf.compat.v1

SETTINGS = TrainingSettings(model="partition")
WIDTH = partition.WEIGHTS_OF_A_WORKER


def assert_all_parts_found(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that an ended run found all weights, also according to a later evaluation."""
    metrics, workers = cluster.metrics(), len(cluster.hosts["worker"])
    assert metrics["largest_error"] < 0.02
    assert (metrics["parts_found"], metrics["parts"]) == (workers, workers)
    assert metrics["loss"] == pytest.approx(partition.NOISE**2, rel=0.5)
    assert f"found are those of {workers} of {workers} workers" in cluster.output("worker0")
    chief = cluster.directory("worker0")
    # A process without ps must create the variables that were on the ps.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert evaluator.main([str(chief)]) == FINISHED
    found, _ = read_records(events_file(chief, "evaluator", 0))
    assert found[-2].fields["metrics"] == pytest.approx(metrics, rel=1e-3, abs=1e-6)


def test_a_worker_with_its_own_ps_learns_only_its_part_although_its_loss_falls() -> None:
    *ps_hosts, first, second = [f"127.0.0.1:{port}" for port in free_ports(4)]
    for index, ps in enumerate(ps_hosts):
        cluster = task_cluster.Cluster("worker", index, (ps,), (first, second))
        spec = tf.train.ClusterSpec(cluster.jobs)
        servers = [
            v1.train.Server(spec, job_name=job, task_index=task)
            for job, task in (("ps", 0), ("worker", index))
        ]
        graph = AsynchronousGraph(cluster, SETTINGS, REGISTRY["partition"], partition.load(SETTINGS, 2))
        session = graph.session(servers[1].target)
        session.initialise()
        losses = [session.step(lambda: None).loss for _ in range(60)]
        assert losses[0] > 1
        assert losses[-1] < 0.001
        metrics = session.evaluate(graph.data.test)
        assert metrics["parts_found"] == 1
        assert metrics[f"error_of_worker{index}"] < 0.02
        others = slice((1 - index) * WIDTH, (2 - index) * WIDTH)
        unknown = [partition.known_weights(2)[others], partition.known_rows(2)[others]]
        assert metrics["largest_error"] == pytest.approx(np.abs(unknown).max())
        session.session.close()


def test_a_worker_trains_on_its_own_part_and_is_evaluated_on_all_parts() -> None:
    data = partition.load(SETTINGS, 3)
    weights, rows = partition.known_weights(3), partition.known_rows(3)
    for worker in range(3):
        part = data.train_of(worker).read(0, len(data.train) // 3)
        x, ids, factors = np.split(part.features, [len(weights), len(weights) + WIDTH], axis=1)
        own = np.arange(worker * WIDTH, (worker + 1) * WIDTH)
        assert set(np.abs(x[:, own]).ravel()) == {1.0}
        assert np.abs(x).sum() == len(part) * WIDTH, "0 but for its own weights"
        assert set(ids.ravel()) == set(own), "its own rows, and no others"
        assert set(np.abs(factors).ravel()) == {1.0}
        expected = x @ weights + np.sum(rows[ids.astype(int)] * factors, axis=1)
        assert part.labels == pytest.approx(expected, abs=6 * partition.NOISE)
    tested = data.test.read(0, len(data.test)).features
    assert set(np.abs(tested[:, : len(weights)]).ravel()) == {1.0}
    assert set(tested[:, len(weights) : len(weights) + WIDTH].ravel()) == set(range(len(rows)))
    for known, others in ((weights, partition.known_weights(2)), (rows, partition.known_rows(2))):
        assert np.abs(known).min() >= 1, "what was not learned is far from what is known"
        assert list(others) == list(known[: 2 * WIDTH])
    assert len(set(np.concatenate([weights, rows]))) == 4 * 3 * WIDTH // 2


@pytest.mark.parametrize("workers", few([3, 300], 3))
def test_the_test_examples_need_every_row(workers: int) -> None:
    data = partition.load(SETTINGS, workers)
    [table] = partition.tables(ModelContext(SETTINGS, data, Devices((), "/job:localhost")))
    tested = data.test.read(0, len(data.test))
    with tf.Graph().as_default(), v1.Session() as session:
        ids = table.ids(ModelContext(SETTINGS, data, Devices((), "")), tf.constant(tested.features))
        needed = session.run(ids)
    assert set(needed.ravel()) == set(range(table.rows)) == set(range(workers * WIDTH))


@pytest.mark.parametrize(
    "settings",
    [{"replication": "in_graph"}, {"optimizer": "momentum"}, {"push_every": 4}, {"staleness": "damped"}],
    ids=str,
)
def test_settings_that_are_not_for_tables_leave_the_rows_out(settings: dict[str, object]) -> None:
    of_run = TrainingSettings.from_mapping({"model": "partition", **settings})
    data = partition.load(of_run, 3)
    context = ModelContext(of_run, data, Devices((), "/job:localhost"))
    assert not partition.tables(context)
    tested = data.test.read(0, len(data.test))
    assert tested.features.shape[1] == 3 * WIDTH
    with tf.Graph().as_default(), v1.Session() as session:
        known = [tf.constant(partition.known_weights(3))]
        assert session.run(partition.loss(context, known, tested.features, tested.labels)) < 0.001


def test_every_worker_reads_the_whole_data_if_there_is_one_part() -> None:
    examples = Examples(np.zeros((5, 2), np.float32), np.arange(5))
    whole = Data(examples, examples)
    assert [list(whole.train_of(worker).read(0, 5).labels) for worker in (0, 7)] == [[0, 1, 2, 3, 4]] * 2


@pytest.mark.parametrize(("ps", "sizes"), [(0, [6]), (1, [6]), (2, [3, 3]), (4, [2, 2, 1, 1]), (9, [1] * 6)])
def test_each_ps_holds_some_weights(ps: int, sizes: list[int]) -> None:
    devices = Devices(tuple(f"/job:ps/task:{index}" for index in range(ps)), "/job:worker/task:0")
    context = ModelContext(SETTINGS, partition.load(SETTINGS, 3), devices)
    with tf.Graph().as_default(), v1.device(v1.train.replica_device_setter(ps_tasks=ps)):
        variables = partition.create_variables(context)
    assert [variable.shape[0] for variable in variables] == sizes
    assert len({variable.device for variable in variables}) == len(sizes)


@pytest.mark.parametrize(
    ("replication", "optimizer", "own_rate", "expected"),
    [
        ("async", "sgd", None, 0.125),
        ("sync", "sgd", None, 0.5),
        ("in_graph", "sgd", None, 0.625),
        ("sync", "adam", None, 0.05),
        ("sync", "sgd", 0.3, 0.3),
    ],
)
def test_the_rate_for_sgd_grows_with_the_number_of_averaged_gradients(
    replication: str, optimizer: str, own_rate: float | None, expected: float
) -> None:
    settings = TrainingSettings(
        model="partition",
        replication=replication,
        replicas_to_aggregate=4 if replication == "sync" else None,
        optimizer=optimizer,
        learning_rate=own_rate,
    )
    assert REGISTRY["partition"].learning_rate(settings, 5) == pytest.approx(expected)


def test_metrics_of_many_workers_name_only_the_worst_worker() -> None:
    workers = partition.MOST_ERRORS_SHOWN + 1
    data = partition.load(SETTINGS, workers)
    context = ModelContext(SETTINGS, data, Devices((), "/job:localhost"))
    with tf.Graph().as_default(), v1.Session() as session:
        test = data.test.read(0, len(data.test))
        [table] = partition.tables(context)
        ids = table.ids(context, test.features)
        for wrong in ("weights", "rows"):
            found = {"weights": partition.known_weights(workers), "rows": partition.known_rows(workers)}
            found[wrong][5 * WIDTH] += 0.06
            rows = tf.gather(found["rows"], ids)[:, :, tf.newaxis]
            values = session.run(
                partition.metrics(context, [found["weights"], rows], test.features, test.labels)
            )
            assert values[partition.WORST_WORKER] == 5, wrong
            assert values["parts_found"] == workers - 1
            assert values["largest_error"] == pytest.approx(0.06, abs=1e-5)
            assert not [name for name in values if name.startswith(partition.ERROR_OF_WORKER)]
