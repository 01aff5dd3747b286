"""One step of two workers in this process applies the mean over all their examples."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.ports import free_ports
from tests.trainer.processes import until
from trainer.contract.settings import TrainingSettings
from trainer.coordination.ledger import OwnPart
from trainer.coordination.ledger_parts import GLOBAL_STEP
from trainer.engine.in_graph import InGraphGraph
from trainer.engine.synchronous import SynchronousGraph
from trainer.engine.synchronous_rounds import CLOSED, Standing
from trainer.model.models import REGISTRY, linear
from trainer.model.models.model import Model, ModelContext, Variables
from trainer.process.cluster import Cluster

v1 = tf.compat.v1

RATE = 0.1
BATCH_SIZES = (30, 6)
PS, *WORKERS = [f"127.0.0.1:{port}" for port in free_ports(3)]
Batches = list[tuple[tf.Tensor, tf.Tensor]]


@pytest.fixture(scope="module")
def targets() -> list[str]:
    """Where the sessions of each worker go; the servers live as long as this process."""
    jobs = tf.train.ClusterSpec({"ps": [PS], "worker": WORKERS})
    places = (("ps", 0), ("worker", 0), ("worker", 1))
    _, *workers = [v1.train.Server(jobs, job_name=job, task_index=index) for job, index in places]
    return [server.target for server in workers]


def _cluster(index: int, replication: str) -> Cluster:
    return Cluster("worker", index, (PS,), tuple(WORKERS), replication=replication)


def _settings(replication: str) -> TrainingSettings:
    return TrainingSettings(
        model="linear",
        replication=replication,
        batch_size=BATCH_SIZES[0],
        learning_rate=RATE,
        steps_per_call=1,
    )


def _recorded(batches: Batches) -> Model:
    """The linear model, which notes the batches that a loss is computed of."""

    def loss(
        context: ModelContext, variables: Variables, features: tf.Tensor, labels: tf.Tensor
    ) -> tf.Tensor:
        batches.append((features, labels))
        return linear.loss(context, variables, features, labels)

    return dataclasses.replace(REGISTRY["linear"], loss=loss)


def test_in_graph_the_mean_is_weighted_by_the_examples_of_each_tower(targets: list[str]) -> None:
    counted = OwnPart(targets[1], _cluster(1, "in_graph"))
    counted.create({"batch_size": BATCH_SIZES[1]})
    batches: Batches = []
    model, settings = _recorded(batches), _settings("in_graph")
    graph = InGraphGraph(_cluster(0, "in_graph"), settings, model, model.load(settings, 2))
    graph.use_notes({"worker1": {"batch_size": BATCH_SIZES[1]}})
    session = graph.session(targets[0])
    session.initialise()
    weight, bias = session.session.run(graph.model_variables)

    towers = batches[: len(BATCH_SIZES)]
    (loss, told, *_), read = session.session.run([graph.step, towers])

    assert [len(features) for features, _ in read] == list(BATCH_SIZES)
    x, y = (np.concatenate(parts) for parts in zip(*read, strict=True))
    error = weight * x + bias - y
    assert loss == pytest.approx(np.mean(error**2), rel=1e-5)
    found = session.session.run(graph.model_variables)
    assert found[0] == pytest.approx(weight - RATE * np.mean(2 * error * x), rel=1e-5)
    assert found[1] == pytest.approx(bias - RATE * np.mean(2 * error), rel=1e-5)
    assert list(told) == [0, 1, 0, 1, 1]
    # Each tower is on the device of its worker.
    places = [f"/job:worker/task:{worker}/device:CPU:0" for worker in (0, 1)]
    assert [features.device for features, _ in towers] == places
    towers_there, global_step, last_loss = counted.towers()
    assert (towers_there, global_step) == (1, 1)
    x, y = read[1]
    assert last_loss == pytest.approx(np.mean((weight * x + bias - y) ** 2), rel=1e-5)
    session.close()
    counted.close()


def test_synchronous_gradients_of_both_workers_make_one_step(targets: list[str]) -> None:
    settings = _settings("sync")
    batches: list[Batches] = [[], []]
    models = [_recorded(of_worker) for of_worker in batches]
    graphs = [
        SynchronousGraph(_cluster(index, "sync"), settings, model, model.load(settings, 2))
        for index, model in enumerate(models)
    ]
    chief, other = (graph.session(target) for graph, target in zip(graphs, targets, strict=True))
    chief.initialise()
    weight, bias = chief.session.run(graphs[0].model_variables)

    def standing() -> Standing:
        return Standing.from_values(other.session.run(graphs[1].rounds.standing))

    chief.last_step = 2
    chief.begin()
    until(lambda: standing().round != CLOSED, "an open round")

    read = [
        session.session.run([of_worker[0], graph.step])[0]
        for session, of_worker, graph in zip((chief, other), batches, graphs, strict=True)
    ]

    until(lambda: standing().counters[GLOBAL_STEP] == 1, "the step")
    assert standing().counters == (1, 0, 1, 1)
    x, y = (np.concatenate(parts) for parts in zip(*read, strict=True))
    assert len(x) == 2 * BATCH_SIZES[0]
    error = weight * x + bias - y
    found = other.session.run(graphs[1].model_variables)
    assert found[0] == pytest.approx(weight - RATE * np.mean(2 * error * x), rel=1e-5)
    assert found[1] == pytest.approx(bias - RATE * np.mean(2 * error), rel=1e-5)
    chief.end()
    chief.close()
    other.close()
