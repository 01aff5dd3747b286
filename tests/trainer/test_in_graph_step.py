"""One step over two towers with unlike batches: what is applied is the mean over all their examples."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.processes import free_ports
from trainer.cluster import Cluster
from trainer.in_graph import InGraphGraph
from trainer.ledger import OwnPart
from trainer.models import linear
from trainer.models.model import ModelContext, Variables
from trainer.settings import TrainingSettings

v1 = tf.compat.v1

RATE = 0.1
BATCH_SIZES = (30, 6)


def test_the_mean_is_weighted_by_the_examples_of_each_tower() -> None:
    ps, *workers = [f"127.0.0.1:{port}" for port in free_ports(3)]
    client, other = (
        Cluster("worker", index, (ps,), tuple(workers), replication="in_graph") for index in (0, 1)
    )
    servers = {
        (job, index): v1.train.Server(tf.train.ClusterSpec(client.jobs), job_name=job, task_index=index)
        for job, index in (("ps", 0), ("worker", 0), ("worker", 1))
    }
    counted = OwnPart(servers["worker", 1].target, other)
    counted.create({"batch_size": BATCH_SIZES[1]})
    batches: list[tuple[tf.Tensor, tf.Tensor]] = []

    def recorded_loss(
        context: ModelContext, variables: Variables, features: tf.Tensor, labels: tf.Tensor
    ) -> tf.Tensor:
        batches.append((features, labels))
        return linear.loss(context, variables, features, labels)

    model = dataclasses.replace(linear.MODEL, loss=recorded_loss)
    settings = TrainingSettings(
        model="linear", replication="in_graph", batch_size=BATCH_SIZES[0], learning_rate=RATE
    )
    graph = InGraphGraph(client, settings, model, model.load(settings, 2))
    graph.hear({"worker1": {"batch_size": BATCH_SIZES[1]}})
    session = graph.session(servers["worker", 0].target)
    session.initialise()
    weight, bias = session.session.run(graph.model_variables)

    towers = batches[: len(BATCH_SIZES)]
    (loss, before, counters, *_), read = session.session.run([graph.step, towers])

    assert [len(features) for features, _ in read] == list(BATCH_SIZES)
    x, y = (np.concatenate(parts) for parts in zip(*read, strict=True))
    error = weight * x + bias - y
    assert loss == pytest.approx(np.mean(error**2), rel=1e-5)
    found = session.session.run(graph.model_variables)
    assert found[0] == pytest.approx(weight - RATE * np.mean(2 * error * x), rel=1e-5)
    assert found[1] == pytest.approx(bias - RATE * np.mean(2 * error), rel=1e-5)
    assert (before, list(counters)) == (0, [1, 0, 1, 1])
    # The devices are those that the towers are named after.
    places = [f"/job:worker/task:{worker}/device:CPU:0" for worker in (0, 1)]
    assert [features.device for features, _ in towers] == places
    towers_there, global_step, last_loss = counted.towers()
    assert (towers_there, global_step) == (1, 1)
    x, y = read[1]
    assert last_loss == pytest.approx(np.mean((weight * x + bias - y) ** 2), rel=1e-5)
