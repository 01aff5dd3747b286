"""Workers train on examples that are made or read as they are needed, and are not in memory."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.trainer.engine.transfers import Tasks
from trainer.contract.data_files import NUMBERS
from trainer.contract.model_card import Card
from trainer.contract.settings import TrainingSettings
from trainer.contract.table_models import rows_of
from trainer.engine.replication import ENGINES
from trainer.engine.training import TrainingSession
from trainer.model import click_files, scores
from trainer.model.click_truth import MISSING_NUMBER, Truth
from trainer.model.clicks import generate_clicks
from trainer.model.data import Data
from trainer.model.models import REGISTRY
from trainer.model.models.model import Metrics, Model, ModelContext, Scalars, Values, Variables

v1 = tf.compat.v1

ROWS = rows_of(11_000)
OFFSETS = np.cumsum([0, *ROWS[:-1]])
STEPS = 150


def _create(_context: ModelContext) -> Variables:
    zeros = v1.zeros_initializer()
    return [
        v1.get_variable(name, [size], initializer=zeros, use_resource=True)
        for name, size in (("of_ids", sum(ROWS)), ("of_numbers", 2 * NUMBERS), ("bias", 1))
    ]


def _logits(variables: Values, features: tf.Tensor) -> tf.Tensor:
    of_ids, of_numbers, bias = variables
    assert features.dtype == tf.int64
    numbers, ids = features[:, :NUMBERS], features[:, NUMBERS:] + OFFSETS
    missing = tf.cast(tf.equal(numbers, MISSING_NUMBER), tf.float32)
    logarithms = tf.math.log(tf.cast(tf.maximum(numbers, -3) + 4, tf.float32)) * (1 - missing)
    dense = tf.linalg.matvec(tf.concat([logarithms, missing], axis=1), of_numbers)
    return tf.reduce_sum(tf.gather(of_ids, ids), axis=1) + dense + bias


def _loss(_context: ModelContext, variables: Values, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    found = _logits(variables, features)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=found))


def _metrics(_context: ModelContext, variables: Values, features: tf.Tensor, labels: tf.Tensor) -> Scalars:
    return {"counts": scores.score_counts(_logits(variables, features), labels)}


def _results(found: Metrics) -> dict[str, float]:
    return {"auc": scores.auc(found["counts"]), "log_loss": scores.log_loss(found["counts"])}


MODEL = Model(
    **{
        **vars(REGISTRY["linear"]),
        "card": Card(learning_rates={"adagrad": 0.3}),
        "create_variables": _create,
        "loss": _loss,
        "metrics": _metrics,
        "results": _results,
        "outputs": lambda _context, variables, features: {"logits": _logits(variables, features)},
        "watched": lambda _variables: {},
    }
)


def _sessions(data: Data, replication: str = "async") -> list[TrainingSession]:
    settings = TrainingSettings(batch_size=256, shard_data=True, replication=replication, steps_per_call=1)
    tasks, sessions = Tasks(2), []
    for worker in range(2):
        cluster = tasks.cluster(worker, replication)
        graph = ENGINES[replication](cluster, settings, MODEL, data)
        sessions.append(graph.session(tasks.target(worker)))
    sessions[0].initialise()
    return sessions


def _files(folder: Path) -> Data:
    assert click_files.main([str(folder), "--train=20000", "--test=5000", "--rows=11000"]) == 0
    return click_files.clicks_in(folder, ROWS)


def _train(sessions: Sequence[TrainingSession]) -> None:
    for _ in range(STEPS):
        for session in sessions:
            session.step(lambda: None)


@pytest.mark.parametrize("kind", [pytest.param("generated", marks=pytest.mark.chaos), "files"])
def test_workers_learn_from_clicks(kind: str, tmp_path: Path) -> None:
    data = generate_clicks(Truth(ROWS, 1), 200_000, 5_000) if kind == "generated" else _files(tmp_path)
    sessions = _sessions(data)
    (fit,) = sessions[1].check_gradients(sessions[1].sampled_batches(3)).values()
    assert fit.loss == pytest.approx(math.log(2), rel=1e-5)
    assert fit.fit == pytest.approx(1, abs=0.1)
    assert sessions[0].evaluate(data.test)["auc"] == 0.5
    _train(sessions)
    found = sessions[0].evaluate(data.test)
    assert 0.66 < found["auc"] < 0.79
    assert 0.45 < found["log_loss"] < 0.56


@pytest.mark.chaos
def test_a_worker_alone_learns_nothing_about_the_ids_of_others() -> None:
    data = generate_clicks(Truth(ROWS, 1, parts=2), 200_000, 5_000, parts=2)
    together = _sessions(data)
    _train(together)
    alone, _ = _sessions(data)
    _train([alone, alone])
    aucs = [session.evaluate(data.test)["auc"] for session in (together[0], alone)]
    assert aucs[0] > aucs[1] + 0.02
