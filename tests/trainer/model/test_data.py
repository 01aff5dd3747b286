"""Batches: every example once an epoch, alone or by shares, in an order that changes."""

from itertools import chain

import numpy as np
import pytest
import tensorflow as tf

from trainer.contract.exit_codes import INPUT
from trainer.contract.settings import TrainingSettings
from trainer.model.data import Examples, batches, epoch_and_batch, seed_and_shard
from trainer.process.failure import TaskFailure

v1 = tf.compat.v1

SETTINGS = TrainingSettings(seed=7)
SHARDED = TrainingSettings(seed=7, shard_data=True)


def _examples(count: int) -> Examples:
    """Each example's label is its number, its features are that number and its square."""
    numbers = np.arange(count)
    return Examples(np.stack([numbers, numbers**2], axis=1).astype(np.float32), numbers)


def _read(
    settings: TrainingSettings, count: int, worker: tuple[int, int], batch_size: int, steps: int
) -> list[int]:
    """The numbers of the examples that worker (of how many, index) gets, drawn as in its own process."""
    workers, index = worker
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(settings.seed + index)
        seed, shard = seed_and_shard(settings, workers, index)
        dataset, feeds = batches(_examples(count), batch_size, seed, shard)
        iterator = v1.data.make_initializable_iterator(dataset)
        batch = iterator.get_next()
        read: list[int] = []
        with v1.Session(graph=graph) as session:
            session.run(iterator.initializer, feeds)
            for _ in range(steps):
                features, labels = session.run(batch)
                assert features.shape == (batch_size, 2)
                assert features.tolist() == [[label, label**2] for label in labels]
                read += labels.tolist()
    return read


@pytest.mark.parametrize(("count", "workers"), [(12, 3), (11, 3), (7, 2)])
def test_shares_together_contain_each_example_once_in_each_of_three_epochs(count: int, workers: int) -> None:
    shares = [len(range(index, count, workers)) for index in range(workers)]
    read = [_read(SHARDED, count, (workers, index), 1, 3 * shares[index]) for index in range(workers)]
    orders = []
    for epoch in range(3):
        parts = [
            numbers[epoch * share : (epoch + 1) * share] for numbers, share in zip(read, shares, strict=True)
        ]
        assert sorted(chain(*parts)) == list(range(count)), f"epoch {epoch}"
        orders.append(parts)
    assert orders[0] != orders[1] != orders[2], "each epoch is shuffled anew"


def test_shares_do_not_depend_on_the_batch_sizes() -> None:
    assert _read(SHARDED, 12, (2, 1), 5, 6) == _read(SHARDED, 12, (2, 1), 3, 10)


def test_without_shares_every_worker_reads_all_examples_in_its_own_order() -> None:
    first, second = (_read(SETTINGS, 12, (2, index), 6, 6) for index in range(2))
    for numbers in (first, second):
        epochs = [numbers[start : start + 12] for start in (0, 12, 24)]
        assert [sorted(epoch) for epoch in epochs] == 3 * [list(range(12))]
        assert epochs[0] != epochs[1] != epochs[2]
    assert first != second
    assert first == _read(SETTINGS, 12, (2, 0), 6, 6), "a seed gives the same order again"


@pytest.mark.parametrize("had", [0, 1, 5, 6, 7, 20])
def test_a_worker_goes_on_after_the_examples_that_it_has_had(had: int) -> None:
    expected = _read(SHARDED, 12, (2, 1), 1, 30)[had:]
    with tf.Graph().as_default() as graph:
        before = v1.placeholder(tf.int64, [])
        dataset, feeds = batches(_examples(12), 1, *seed_and_shard(SHARDED, 2, 1), before)
        iterator = v1.data.make_initializable_iterator(dataset)
        labels = iterator.get_next()[1]
        with v1.Session(graph=graph) as session:
            session.run(iterator.initializer, {**feeds, before: had})
            assert [int(session.run(labels)[0]) for _ in expected] == expected


def test_the_batch_size_of_another_worker_can_be_fed() -> None:
    with tf.Graph().as_default() as graph:
        size = v1.placeholder(tf.int64, [])
        dataset, feeds = batches(_examples(10), size, 1)
        iterator = v1.data.make_initializable_iterator(dataset)
        labels = iterator.get_next()[1]
        with v1.Session(graph=graph) as session:
            for expected in (4, 9):
                session.run(iterator.initializer, {**feeds, size: expected})
                assert [len(session.run(labels)) for _ in range(3)] == 3 * [expected]


def test_more_workers_than_examples_are_refused() -> None:
    with tf.Graph().as_default(), pytest.raises(TaskFailure) as failure:
        batches(_examples(2), 1, 1, (3, 0))
    assert failure.value.code == INPUT
    assert "shard_data is true for 3 workers" in failure.value.reason
    assert "there are 2" in failure.value.reason


@pytest.mark.parametrize(
    ("examples", "batch_size", "workers", "expected"),
    [
        (1437, 100, None, 15),
        (1437, 100, 2, 8),
        (60000, 100, None, 600),
        (60000, 100, 3, 200),
        (10, 100, 2, 1),
    ],
)
def test_the_number_of_batches_in_an_epoch_is_rounded_up(
    examples: int, batch_size: int, workers: int | None, expected: int
) -> None:
    assert epoch_and_batch(1, examples, batch_size, workers) == (1, 1, expected)


@pytest.mark.parametrize(
    ("workers", "batch_size"), [(None, 100), (2, 100), (3, 7), (None, 1437), (2, 1000), (None, 5000)]
)
def test_epoch_and_batch_are_computed_from_the_examples_read(workers: int | None, batch_size: int) -> None:
    examples = 1437
    own = -(-examples // (workers or 1))
    expected_batch, epoch_before = 0, 0
    for local_step in range(1, 200):
        epoch = 1 + (local_step - 1) * batch_size // own
        expected_batch = expected_batch + 1 if epoch == epoch_before else 1
        *found, batches_of_epoch = epoch_and_batch(local_step, examples, batch_size, workers)
        assert found == [epoch, expected_batch]
        assert expected_batch <= batches_of_epoch
        epoch_before = epoch
