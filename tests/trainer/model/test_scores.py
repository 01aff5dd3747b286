"""AUC and log loss from counts: near those of the scores, and independent of the batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

from trainer.contract.settings import TrainingSettings
from trainer.model import evaluation, scores
from trainer.model.data import Data, Examples
from trainer.model.evaluation import Evaluation
from trainer.model.models import REGISTRY
from trainer.model.models.model import Devices, Metrics, Model, ModelContext, Scalars, Values
from trainer.model.tables.lookup import Tables

v1 = tf.compat.v1

Floats = npt.NDArray[Any]


def _floats(values: Sequence[float]) -> Floats:
    return np.array(values, np.float32)


def _exact_auc(logits: Floats, labels: Floats) -> float:
    """The area under the curve by the ranks of the scores, of which equal ones share their mean rank."""
    _, place, count = np.unique(logits, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    clicks = labels.sum()
    pairs = clicks * (len(labels) - clicks)
    return float((ranks[labels == 1].sum() - clicks * (clicks + 1) / 2) / pairs)


def _exact_loss(logits: Floats, labels: Floats) -> float:
    return float((np.logaddexp(0, logits) - labels * logits).mean())


def _drawn(seed: int, count: int, deviation: float) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(seed)
    logits = generator.normal(-1.6, deviation, count).astype(np.float32)
    return logits, (generator.random(count) < 1 / (1 + np.exp(-logits))).astype(np.float32)


@pytest.mark.parametrize(
    ("count", "deviation"), [(100_000, 1.4), (50_000, 0.01), (2_000, 1.4), (100_000, 3.0), (5, 1.0)]
)
def test_auc_and_log_loss_are_within_their_bounds(count: int, deviation: float) -> None:
    logits, labels = _drawn(1, count, deviation)
    labels[:2] = 0, 1
    counts = scores.count_scores(logits, labels)
    assert counts.sum() == count
    error, bound = abs(scores.auc(counts) - _exact_auc(logits, labels)), scores.auc_bound(counts)
    assert error <= bound
    assert scores.log_loss(counts) == pytest.approx(_exact_loss(logits, labels), abs=1 / 2048)
    if deviation == 1.4:
        assert bound < 2e-4


def test_the_bound_is_no_larger_than_needed() -> None:
    """Scores that share a bin, in the right order and in the wrong one."""
    logits = _floats([0.0001, 0.0002])
    for labels, exact in (([0, 1], 1.0), ([1, 0], 0.0)):
        counts = scores.count_scores(logits, _floats(labels))
        assert (scores.auc(counts), scores.auc_bound(counts)) == (0.5, 0.5)
        assert _exact_auc(logits, _floats(labels)) == exact


@pytest.mark.parametrize(
    ("logits", "labels", "auc"),
    [
        ([-1, 1], [0, 1], 1.0),
        ([1, -1], [0, 1], 0.0),
        ([0, 0, 0], [0, 1, 1], 0.5),
        ([-3, -2, -1, 0], [0, 1, 0, 1], 0.75),
        ([1, 2], [1, 1], 0.5),
        ([-1e30, np.inf, np.nan, 20, -np.inf, 17], [0, 1, 0, 1, 0, 1], 1.0),
    ],
)
def test_auc_of_a_few_scores(logits: Sequence[float], labels: Sequence[int], auc: float) -> None:
    counts = scores.count_scores(_floats(logits), _floats(labels))
    assert scores.auc(counts) == auc
    assert scores.auc_bound(counts) >= 0
    assert np.isfinite(scores.log_loss(counts))


def test_tensorflow_counts_as_numpy_does() -> None:
    logits, labels = _drawn(2, 30_000, 6.0)
    edges = _floats([-16, 16, -17, 17, np.nan, np.inf, -np.inf, 0, -0.0, 1 / 1024, 1e-7])
    logits, labels = np.concatenate([logits, edges]), np.concatenate([labels, np.ones(len(edges))])
    with tf.Graph().as_default(), v1.Session() as session:
        fed = [v1.placeholder(tf.float32, [None]), v1.placeholder(tf.float32, [None])]
        counts = scores.score_counts(*fed)
        found = session.run(counts, dict(zip(fed, (logits, labels), strict=True)))
    assert found.dtype == np.int64
    assert (found == scores.count_scores(logits, labels)).all()


def test_a_model_is_judged_the_same_in_batches_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model scores by a weight; its metrics have counts, a mean and a mean of two numbers."""
    logits, labels = _drawn(3, 2_500, 1.4)
    whole = np.arange(2_500, dtype=np.int64)  # the places of the scores: features may be whole numbers

    def metrics(_context: ModelContext, variables: Values, features: tf.Tensor, labels: tf.Tensor) -> Scalars:
        assert features.dtype == tf.int64
        found = tf.gather(tf.constant(logits), features) * variables[0]
        pair = tf.reduce_mean(tf.stack([found, labels]), axis=1)
        return {"counts": scores.score_counts(found, labels), "loss": tf.reduce_mean(found), "pair": pair}

    def results(found: Metrics) -> dict[str, float]:
        clicks = float(found["pair"][1])
        auc, loss = scores.auc(found["counts"]), scores.log_loss(found["counts"])
        return {"auc": auc, "log_loss": loss, "mean": float(found["loss"]), "clicks": clicks}

    own = {"metrics": metrics, "results": results, "outputs": lambda *_: {}}
    model = Model(**{**vars(REGISTRY["linear"]), **own})
    examples = Examples(whole, labels)
    context = ModelContext(TrainingSettings(), Data(examples, examples), Devices((), ""))
    found = []
    for size in (1000, 7, 2_500, 4_000):
        monkeypatch.setattr(evaluation, "EVALUATION_BATCH", size)
        with tf.Graph().as_default(), v1.Session() as session:
            weight = v1.get_variable("weight", initializer=1.0, use_resource=True)
            evaluated = Evaluation(model, context, [weight], Tables(model, context))
            session.run(weight.initializer)
            found.append(evaluated.run(session, examples))
    counts = scores.count_scores(logits, labels)
    for one in found:
        assert (one["auc"], one["log_loss"]) == (scores.auc(counts), scores.log_loss(counts)), "to the bit"
        assert one["mean"] == pytest.approx(logits.mean(), rel=1e-5)
        assert one["clicks"] == pytest.approx(labels.mean(), rel=1e-5)
