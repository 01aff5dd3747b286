"""The partition model: workers that share learn every part, a worker alone only its own."""

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.ports import free_ports
from tests.trainer.processes import Cluster
from trainer import evaluator
from trainer.contract.exit_codes import FINISHED
from trainer.contract.records import events_file, read_records
from trainer.contract.settings import TrainingSettings
from trainer.engine.asynchronous import AsynchronousGraph
from trainer.model.data import Data, Examples
from trainer.model.models import partition
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
        graph = AsynchronousGraph(cluster, SETTINGS, partition.MODEL, partition.load(SETTINGS, 2))
        session = graph.session(servers[1].target)
        session.initialise()
        losses = [session.step(lambda: None).loss for _ in range(60)]
        assert losses[0] > 1
        assert losses[-1] < 0.001
        metrics = session.evaluate(graph.data.test)
        assert metrics["parts_found"] == 1
        assert metrics[f"error_of_worker{index}"] < 0.02
        others = partition.known_weights(2)[(1 - index) * WIDTH :][:WIDTH]
        assert metrics["largest_error"] == pytest.approx(np.abs(others).max())
        session.session.close()


def test_a_worker_trains_on_its_own_part_and_is_evaluated_on_all_parts() -> None:
    data = partition.load(SETTINGS, 3)
    known = partition.known_weights(3)
    for worker in range(3):
        part = data.train_of(worker).read(0, len(data.train) // 3)
        own = slice(worker * WIDTH, (worker + 1) * WIDTH)
        assert set(np.abs(part.features[:, own]).ravel()) == {1.0}
        assert np.abs(part.features).sum() == len(part) * WIDTH, "0 but for its own weights"
        assert part.labels == pytest.approx(part.features @ known, abs=6 * partition.NOISE)
    assert set(np.abs(data.test.read(0, len(data.test)).features).ravel()) == {1.0}
    assert np.abs(known).min() >= 1, "a weight that was not learned is far from the known one"
    assert list(partition.known_weights(2)) == list(known[: 2 * WIDTH])


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
        ("async", "sgd", None, 0.2),
        ("sync", "sgd", None, 0.8),
        ("in_graph", "sgd", None, 1.0),
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
    assert partition.MODEL.learning_rate(settings, 5) == pytest.approx(expected)


def test_metrics_of_many_workers_name_only_the_worst_worker() -> None:
    workers = partition.MOST_ERRORS_SHOWN + 1
    data = partition.load(SETTINGS, workers)
    context = ModelContext(SETTINGS, data, Devices((), "/job:localhost"))
    with tf.Graph().as_default(), v1.Session() as session:
        variables = partition.create_variables(context)
        found = partition.known_weights(workers)
        found[5 * WIDTH] += 0.06
        test = data.test.read(0, len(data.test))
        metrics = partition.metrics(context, variables, test.features, test.labels)
        session.run([variable.assign(found).op for variable in variables])
        values = session.run(metrics)
    assert values[partition.WORST_WORKER] == 5
    assert values["parts_found"] == workers - 1
    assert values["largest_error"] == pytest.approx(0.06, abs=1e-5)
    assert not [name for name in values if name.startswith(partition.ERROR_OF_WORKER)]
