"""The gradient test of a session: whether the pushed gradients are those of the loss."""

import math
from collections.abc import Callable, Sequence

import pytest
import tensorflow as tf

from tests.psfleet.evidence.adversaries.faulty_trainer import FAULTS
from tests.trainer.ports import free_ports
from trainer.contract.settings import TrainingSettings
from trainer.engine.gradient_check import GradientFit
from trainer.engine.replication import ENGINES
from trainer.engine.training import TrainingGraph
from trainer.model.models import REGISTRY
from trainer.process.cluster import Cluster

v1 = tf.compat.v1
PS, *WORKERS = [f"127.0.0.1:{port}" for port in free_ports(3)]
Differentiate = Callable[..., tuple[tf.Tensor, Sequence[tf.Tensor]]]


@pytest.fixture(scope="module")
def target() -> str:
    """Where sessions go; the servers live as long as this process."""
    jobs = tf.train.ClusterSpec({"ps": [PS], "worker": WORKERS})
    places = (("ps", 0), ("worker", 1), ("worker", 0))
    *_, client = [v1.train.Server(jobs, job_name=job, task_index=index) for job, index in places]
    return str(client.target)


def look(target: str, replication: str, model: str) -> dict[str, GradientFit]:
    """What the chief finds before its first step."""
    settings = TrainingSettings(model=model, replication=replication, batch_size=20)
    cluster = Cluster("worker", 0, (PS,), tuple(WORKERS), replication=replication)
    data = REGISTRY[model].load(settings, 2)
    graph = ENGINES[replication](cluster, settings, REGISTRY[model], data)
    graph.use_notes({})
    session = graph.session(target)
    session.initialise()
    found = session.check_gradients(1)
    session.close()
    return found


@pytest.mark.parametrize(
    ("replication", "model"), [*(("async", model) for model in REGISTRY), ("sync", "linear")]
)
def test_the_pushed_gradients_of_each_model_fit_its_loss(target: str, replication: str, model: str) -> None:
    (fit,) = look(target, replication, model).values()
    assert fit.loss > 0 < fit.norm
    assert abs(fit.fit - 1) < 0.1


@pytest.mark.parametrize(
    ("replication", "fault"),
    [("async", "zeros"), ("async", "noise"), ("sync", "noise"), ("in_graph", "noise")],
)
def test_wrong_gradients_of_a_single_worker_do_not_fit_the_loss(
    target: str, replication: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In-graph, the last tower is broken, and the client's own is not."""
    differentiate: Differentiate = TrainingGraph._differentiate
    broken = "tower_1" if replication == "in_graph" else ""

    def differentiate_wrongly(*asked: object) -> tuple[tf.Tensor, Sequence[tf.Tensor]]:
        loss, gradients = differentiate(*asked)
        wrong = [FAULTS[fault](gradient) for gradient in gradients]
        return loss, wrong if broken in loss.op.name else gradients

    monkeypatch.setattr(TrainingGraph, "_differentiate", differentiate_wrongly)
    *good, bad = look(target, replication, "mnist_mlp").values()
    assert len(good) == int(replication == "in_graph")
    assert all(abs(fit.fit - 1) < 0.1 for fit in good)
    assert abs(bad.fit) < 0.3
    assert (bad.norm == 0) == (fault == "zeros")


def test_a_random_loss_gives_no_fit() -> None:
    assert math.isnan(GradientFit.of([2.0, 2.1, 2.2, 1.9, 1.0, 0.01]).fit)
    assert GradientFit.of([2.0, 2.0, 2.01, 1.99, 1.0, 0.01]).fit == pytest.approx(1)
