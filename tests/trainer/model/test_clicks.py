"""Generated clicks: the same everywhere, distributed as intended, and with a known best model."""

import hashlib
import os
import subprocess
import sys
from importlib import import_module
from itertools import chain, combinations

import numpy as np
import pytest
import tensorflow as tf

from tests.repository import ROOT
from trainer.contract.data_files import CATEGORIES, NUMBERS
from trainer.contract.settings import TrainingSettings
from trainer.contract.table_models import rows_of
from trainer.model.click_truth import (
    CLICK_SHARE,
    LOGIT_DEVIATION,
    MISSING_ID,
    MISSING_NUMBER,
    Truth,
)
from trainer.model.clicks import Clicks, generate_clicks
from trainer.model.data import batches, seed_and_shard
from trainer.model.random_words import keys_of, permutation_keys, permute, uniform

v1 = tf.compat.v1

ROWS = rows_of(100_000)
COUNT = 100_000
# Of the first 3,000 examples with seed 1; they must not change.
DIGEST = "6c7cbab122db4d9bec48be920f6a5499abf34abd495dce017c1af47c424ad16d"


@pytest.fixture(scope="module")
def truth() -> Truth:
    return Truth(ROWS, 1)


@pytest.fixture(scope="module")
def clicks(truth: Truth) -> Clicks:
    return Clicks(truth, 0, COUNT)


def digest(clicks: Clicks) -> str:
    examples = clicks.read(0, len(clicks))
    return hashlib.sha256(examples.features.tobytes() + examples.labels.tobytes()).hexdigest()


def test_rows_are_scaled_but_for_features_with_few() -> None:
    rows = rows_of(1_000_000)
    assert 1_000_000 < sum(rows) < 1_020_000
    assert (rows[2], rows[8], rows[13]) == (280_517, 3, 26)
    assert sum(rows_of(20_000_000)) == pytest.approx(20_000_000, rel=0.001)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 1000, 4097])
def test_a_permutation_has_each_place_once_and_hides_the_order(size: int) -> None:
    values, sizes = np.arange(size, dtype=np.uint64), np.array([size], np.uint64)
    places = [permute(values, sizes, permutation_keys(seed, 1)) for seed in range(2)]
    for found in places:
        assert sorted(found.tolist()) == list(range(size))
    if size >= 1000:
        assert (places[0] != places[1]).mean() > 0.99
        assert abs(np.corrcoef(values, places[0])[0, 1]) < 0.1
        # Neighbours lie as far apart as any two places do: a third of the size on average.
        apart = np.abs(np.diff(places[0].astype(np.int64))).mean() / size
        assert apart == pytest.approx(1 / 3, abs=0.03)


def test_random_words_are_uniform_and_independent() -> None:
    drawn = uniform(keys_of(7, 40_000)).reshape(4, -1) - 1
    assert drawn.mean(axis=1) == pytest.approx([0.5] * 4, abs=0.02)
    assert drawn.min() >= 0 and drawn.max() < 1
    assert np.abs(np.corrcoef(drawn) - np.eye(4)).max() < 0.04


def test_an_example_follows_from_its_number_alone(clicks: Clicks) -> None:
    whole = clicks.read(0, 5000)
    assert whole.features.shape == (5000, NUMBERS + CATEGORIES)
    assert whole.features.dtype == np.int64 and whole.labels.dtype == np.float32
    chosen = np.random.default_rng(1).permutation(5000)[:700]
    again = clicks.examples(chosen)
    assert (again.features == whole.features[chosen]).all()
    assert (again.labels == whole.labels[chosen]).all()
    around = clicks.read(COUNT - 2, 4)
    assert (around.features[2:] == whole.features[:2]).all()


def test_another_machine_makes_the_same_examples(truth: Truth) -> None:
    """Its processor lacks the instructions that NumPy and the C library choose by the processor."""
    assert digest(Clicks(truth, 0, 3000)) == DIGEST
    dispatched = import_module("numpy._core._multiarray_umath").__cpu_dispatch__
    older = {
        "NPY_DISABLE_CPU_FEATURES": " ".join(dispatched),
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX512F,-FMA,-FMA4",
    }
    code = "from tests.trainer.model.test_clicks import *; print(digest(Clicks(Truth(ROWS, 1), 0, 3000)))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **older},
        check=True,
    )
    assert done.stdout.strip() == DIGEST


def test_another_seed_gives_other_examples() -> None:
    assert digest(Clicks(Truth(ROWS, 2), 0, 3000)) != DIGEST


def test_clicks_and_logits_are_distributed_as_intended(truth: Truth, clicks: Clicks) -> None:
    numbers = np.arange(COUNT)
    terms = truth.terms(truth.draw(numbers))
    logits = truth.logits(terms)
    assert logits.std() == pytest.approx(LOGIT_DEVIATION, rel=0.02)
    labels = clicks.read(0, COUNT).labels
    assert set(labels.tolist()) == {0, 1}
    assert labels.mean() == pytest.approx(CLICK_SHARE, abs=0.006)
    # Where the truth says that a share of examples are clicks, so many are.
    order = np.argsort(logits)
    for tenth in np.array_split(order, 10):
        expected = (1 / (1 + np.exp(-logits[tenth]))).mean()
        assert labels[tenth].mean() == pytest.approx(expected, abs=0.025)
    assert np.abs(np.corrcoef(np.stack(terms)) - np.eye(3)).max() < 0.02


def test_ids_follow_zipfs_law_and_do_not_tell_their_ranks(truth: Truth) -> None:
    drawn = truth.draw(np.arange(COUNT))
    for feature, power in ((2, 5), (3, 20), (4, 20), (8, 5), (11, 5)):
        rows = ROWS[feature]
        present = drawn.ids[feature] != MISSING_ID
        ranks, ids = drawn.ranks[feature][present].astype(int), drawn.ids[feature][present].astype(int)
        places = np.arange(1, rows + 1) ** (-1 / power)
        expected = -np.diff(places) / (places[0] - places[-1])
        assert ids.min() >= 1 and ids.max() < rows and ranks.max() < rows - 1
        found = np.bincount(ranks, minlength=rows - 1) / len(ranks)
        error = np.sqrt(expected[:50] / len(ranks))
        assert (np.abs(found[:50] - expected[:50]) < 5 * error + 1e-9).all()
        if rows > 1000:
            # The exponent of the law, at its head: the logarithms lie on a line with that slope.
            slope = np.polyfit(np.log(np.arange(3, 40)), np.log(found[2:39]), 1)[0]
            assert -slope == pytest.approx(1 + 1 / power, abs=0.15)
            assert abs(np.corrcoef(ranks, ids)[0, 1]) < 0.1
            # Spread over 4 ps by `id mod 4`, none gets most of the frequent ids.
            frequent = np.unique(ids[ranks < 400])
            assert np.bincount(frequent % 4).max() < 0.35 * len(frequent)


def test_numbers_and_ids_are_missing_as_in_criteos_data(clicks: Clicks) -> None:
    examples = clicks.read(0, COUNT)
    numbers, ids = np.split(examples.features, [NUMBERS], axis=1)
    missing = numbers == MISSING_NUMBER
    shares = [*missing.mean(axis=0), *(ids == MISSING_ID).mean(axis=0)]
    assert max(shares) < 0.78
    assert sum(0.1 < share < 0.5 for share in shares) == 11
    assert shares[1] == shares[NUMBERS] == 0
    for column in range(NUMBERS):
        given = numbers[~missing[:, column], column]
        assert given.min() == (-3 if column == 1 else 0)
        assert given.max() < 10**9
    assert numbers.max() > 100_000
    # Only in the first column it tells something that a number is missing.
    clicked = examples.labels
    told = [
        abs(clicked[missing[:, column]].mean() - clicked[~missing[:, column]].mean())
        for column in range(NUMBERS)
        if missing[:, column].any()
    ]
    assert told[0] > 0.02


@pytest.mark.parametrize("parts", [2, 3])
def test_each_part_has_its_own_ids_and_the_test_has_all(parts: int) -> None:
    data = generate_clicks(Truth(ROWS, 1, parts), 30_000, 20_000, parts)
    assert (len(data.train), len(data.test)) == (30_000, 20_000)
    whole = data.train.read(0, 30_000)
    ids = [data.train_of(worker).read(0, 30_000 // parts).features[:, NUMBERS:] for worker in range(parts)]
    assert (np.concatenate(ids) == whole.features[:, NUMBERS:]).all()
    tested = data.test.read(0, 20_000).features[:, NUMBERS:]
    for feature, rows in enumerate(ROWS):
        own = [set(of[:, feature].tolist()) - {MISSING_ID} for of in ids]
        together = set(tested[:, feature].tolist())
        if rows > parts:
            assert not any(one & other for one, other in combinations(own, 2)), f"feature {feature}"
            assert all(one & together for one in own), "the test has ids of each part"
        assert max(map(max, own)) < rows


def test_the_best_model_is_known(truth: Truth) -> None:
    """As Criteo's data: AUC 0.80, log loss 0.45. A level that knows less predicts worse."""
    test = Clicks(truth, 2**48, COUNT)
    levels = test.levels(100, 1_000_000)
    assert levels["best"].auc == pytest.approx(0.804, abs=0.008)
    assert levels["best"].log_loss == pytest.approx(0.447, abs=0.008)
    assert levels["guess"].auc == 0.5
    order = ("guess", "first_order", "seen", "best")
    aucs, losses = ([levels[level][place] for level in order] for place in (0, 1))
    assert aucs == sorted(aucs) and losses == sorted(losses, reverse=True)
    assert 0.76 < levels["first_order"].auc < 0.785
    assert levels["best"].auc - 0.02 < levels["seen"].auc < levels["best"].auc - 0.003
    more = test.levels(100, 100_000_000)["seen"]
    assert levels["seen"].auc < more.auc < levels["best"].auc + 1e-9


def test_the_ids_that_are_seen_on_average_are_those_that_are_seen(truth: Truth) -> None:
    known = truth.ranks_seen(20, COUNT)[:, 0].astype(int)
    drawn = truth.draw(np.arange(COUNT))
    for feature in (2, 11, 15, 20, 25):
        ranks = drawn.ranks[feature][drawn.ids[feature] != MISSING_ID].astype(int)
        seen = np.bincount(ranks, minlength=ROWS[feature] - 1)
        assert 10 < known[feature] < ROWS[feature] - 1
        assert (seen[: known[feature]] >= 20).mean() > 0.7
        assert (seen[known[feature] :] >= 20).mean() < 0.1
        assert seen[known[feature] - 5 : known[feature] + 5].mean() == pytest.approx(20, rel=0.2)


def _numbers(clicks: Clicks, settings: TrainingSettings, worker: tuple[int, int], count: int) -> list[int]:
    seed, shard = seed_and_shard(settings, *worker)
    return [int(number) for number in clicks.order(np.arange(count), seed, *(shard or (1, 0)))]


def test_workers_train_on_each_example_once_in_an_epoch(truth: Truth) -> None:
    clicks, sharded = Clicks(truth, 0, 1000), TrainingSettings(seed=7, shard_data=True)
    shares = [len(range(index, 1000, 3)) for index in range(3)]
    read = [_numbers(clicks, sharded, (3, index), 2 * shares[index]) for index in range(3)]
    for epoch in range(2):
        parts = [of[epoch * share : (epoch + 1) * share] for of, share in zip(read, shares, strict=True)]
        assert sorted(chain(*parts)) == list(range(1000))
        assert [*chain(*parts)] != list(range(1000))
    assert read[0][:300] != read[0][334:634], "each epoch has an order of its own"
    alone = [_numbers(clicks, TrainingSettings(seed=7), (3, index), 1000) for index in range(2)]
    assert alone[0] != alone[1]
    assert [sorted(of) for of in alone] == [list(range(1000))] * 2


@pytest.mark.parametrize(("batch_size", "had"), [(7, 0), (100, 1300), (5000, 0)])
def test_tensorflow_gets_the_examples_in_their_order(truth: Truth, batch_size: int, had: int) -> None:
    clicks, settings = Clicks(truth, 0, 1000), TrainingSettings(seed=7)
    with tf.Graph().as_default() as graph:
        dataset, feeds = batches(clicks, batch_size, *seed_and_shard(settings, 2, 1), had)
        iterator = v1.data.make_initializable_iterator(dataset)
        batch = iterator.get_next()
        assert [(each.dtype, each.shape[1:]) for each in batch] == [(tf.int64, [39]), (tf.float32, [])]
        with v1.Session(graph=graph) as session:
            session.run(iterator.initializer, feeds)
            read = [session.run(batch) for _ in range(2)]
    expected = clicks.examples(np.array(_numbers(clicks, settings, (2, 1), had + 2 * batch_size)[had:]))
    assert (np.concatenate([features for features, _ in read]) == expected.features).all()
    assert (np.concatenate([labels for _, labels in read]) == expected.labels).all()
