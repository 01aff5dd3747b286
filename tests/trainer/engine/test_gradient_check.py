"""The gradient test of a session: whether the pushed gradients are those of the loss."""

import math
from collections.abc import Callable, Sequence

import pytest
import tensorflow as tf

from tests.few import few
from tests.psfleet.evidence.adversaries.faulty_trainer import FAULTS
from tests.trainer.ports import free_ports
from trainer.contract.settings import TrainingSettings
from trainer.engine import training
from trainer.engine.gradient_check import GradientFit
from trainer.engine.local_steps import Batch, LocalSteps, take_local_steps
from trainer.engine.replication import ENGINES
from trainer.engine.training import TrainingGraph
from trainer.model.models import REGISTRY
from trainer.model.models.model import Values
from trainer.process.cluster import Cluster

v1 = tf.compat.v1
PS, *WORKERS = [f"127.0.0.1:{port}" for port in free_ports(3)]
Differentiate = Callable[..., tuple[tf.Tensor, Sequence[tf.Tensor]]]
LossOf = Callable[[Values, Batch], tf.Tensor]
Move = Callable[..., Values]


@pytest.fixture(scope="module")
def target() -> str:
    """Where sessions go; the servers live as long as this process."""
    jobs = tf.train.ClusterSpec({"ps": [PS], "worker": WORKERS})
    places = (("ps", 0), ("worker", 1), ("worker", 0))
    *_, client = [v1.train.Server(jobs, job_name=job, task_index=index) for job, index in places]
    return str(client.target)


def look(
    target: str, replication: str, model: str, push_every: int = 1, *, steps: int = 0, looks: int = 1
) -> list[dict[str, GradientFit]]:
    """What the chief finds after so many steps, on other batches each time."""
    settings = TrainingSettings(
        model=model,
        replication=replication,
        batch_size=20,
        push_every=push_every,
        steps_per_call=1,
        table_rows=20_000,
    )
    cluster = Cluster("worker", 0, (PS,), tuple(WORKERS), replication=replication)
    data = REGISTRY[model].load(settings, 2)
    graph = ENGINES[replication](cluster, settings, REGISTRY[model], data)
    graph.use_notes({})
    session = graph.session(target)
    session.initialise()
    for _ in range(steps):
        session.step(lambda: None)
    found = [session.check_gradients(session.sampled_batches(number)) for number in range(1, looks + 1)]
    session.close()
    return found


@pytest.mark.parametrize(
    ("replication", "model", "push_every"),
    few(
        [
            *(("async", model, 1) for model in REGISTRY),
            *(("async", name, 8) for name, model in REGISTRY.items() if not model.card.needs_tables),
            ("sync", "wide_deep", 1),
            ("sync", "linear", 1),
            ("sync", "mnist_mlp", 8),
            ("in_graph", "mnist_mlp", 8),
        ],
        ("async", "linear", 1),
        ("async", "cnn", 8),
        ("async", "dlrm", 1),
        ("sync", "wide_deep", 1),
        ("sync", "mnist_mlp", 8),
        ("in_graph", "mnist_mlp", 8),
    ),
)
def test_the_pushed_gradients_of_each_model_fit_its_loss(
    target: str, replication: str, model: str, push_every: int
) -> None:
    (found,) = look(target, replication, model, push_every)
    for fit in found.values():
        assert fit.loss > 0 < fit.norm
        assert abs(fit.fit - 1) < 0.1


@pytest.mark.parametrize(
    ("steps", "factor"),
    [
        (0, 1),  # the gradients of a batch, where the mean of eight is due
        (100, 8),  # told as if they were the mean of eight
    ],
)
def test_a_worker_that_computes_one_batch_of_eight_is_found(
    target: str, steps: int, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a model is good, the gradients of batches are mostly noise."""

    def lazy(
        loss_of: LossOf, move: Move, values: Values, batches: Sequence[Batch], weight: float
    ) -> LocalSteps:
        of_one = take_local_steps(loss_of, move, values, batches[:1], weight / len(batches) * factor)
        whole = take_local_steps(loss_of, move, values, batches, weight)
        return whole._replace(gradients=of_one.gradients)

    monkeypatch.setattr(training, "take_local_steps", lazy)
    found = look(target, "async", "mnist_mlp", 8, steps=steps, looks=20)
    fits = [fit.fit for its in found for fit in its.values()]
    # As the check gradients_fit_loss of the verdict judges them.
    assert sum(not 0.5 <= fit <= 1.5 for fit in fits) > 2, fits


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

    def differentiate_wrongly(*asked: object, pulls: bool) -> tuple[tf.Tensor, Sequence[tf.Tensor]]:
        loss, gradients = differentiate(*asked, pulls=pulls)
        wrong = [FAULTS[fault](gradient) for gradient in gradients]
        return loss, wrong if broken in loss.op.name else gradients

    monkeypatch.setattr(TrainingGraph, "_differentiate", differentiate_wrongly)
    (found,) = look(target, replication, "mnist_mlp")
    *good, bad = found.values()
    assert len(good) == int(replication == "in_graph")
    assert all(abs(fit.fit - 1) < 0.1 for fit in good)
    assert abs(bad.fit) < 0.3
    assert (bad.norm == 0) == (fault == "zeros")


def test_a_random_loss_gives_no_fit() -> None:
    assert math.isnan(GradientFit.from_values([2.0, 2.1, 2.2, 1.9, 1.0, 0.01]).fit)
    assert GradientFit.from_values([2.0, 2.0, 2.01, 1.99, 1.0, 0.01]).fit == pytest.approx(1)
