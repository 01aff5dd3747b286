"""The `tables` records: which rows of a model's tables sampled batches need."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.processes import Cluster
from trainer.contract.exit_codes import FINISHED
from trainer.contract.records import RecordWriter, TaskIdentity, read_records
from trainer.contract.settings import TrainingSettings
from trainer.contract.table_models import rows_of
from trainer.model import click_files
from trainer.model.models import REGISTRY
from trainer.model.models.model import Devices, ModelContext, Table
from trainer.task.tables.samples import MOST_SAMPLES, TableSamples, colliding_share

TABLES = [
    (Table("users", 100, 4, lambda _context, ids: ids), 0),
    (Table("films", 30, 4, lambda _c, ids: ids), 100),
]


def samples_of(folder: Path) -> TableSamples:
    """Return samples of two fused tables on three ps, with records in a folder."""
    writer = RecordWriter(folder / "x.jsonl", TaskIdentity("test", "worker", 0))
    return TableSamples(writer, TABLES, ps_count=3)


def found(folder: Path) -> dict[str, dict[str, object]]:
    """Return what the last record says of each table."""
    tables = read_records(folder / "x.jsonl")[0][-1].fields["tables"]
    assert isinstance(tables, dict)
    return tables


def test_rows_are_counted_over_all_samples_and_travel_once_for_a_batch(tmp_path: Path) -> None:
    samples = samples_of(tmp_path)
    samples.add(0, 3, [np.array([[7], [7], [5]]), np.array([[1, 2], [1, 0], [2, 1]])])
    samples.add(9, 2, [np.array([[7], [99]]), np.array([[29, 29], [29, 1]])])
    users, films = found(tmp_path)["users"], found(tmp_path)["films"]
    assert users == {
        **{"rows": 100, "width": 4, "ids": 5, "distinct": 3, "hot": {"7": 3, "5": 1, "99": 1}},
        **{"of_ps": {"ps0": 1, "ps1": 2, "ps2": 1}},
    }
    # The rows 100, 101, 102 and then 101, 129 of the fused table.
    assert films == {
        **{"rows": 30, "width": 4, "ids": 10, "distinct": 4, "hot": {"1": 4, "29": 3, "2": 2, "0": 1}},
        **{"of_ps": {"ps0": 2, "ps1": 1, "ps2": 2}},
    }
    record = read_records(tmp_path / "x.jsonl")[0][-1]
    assert [record.integer(name) for name in ("global_step", "samples", "examples")] == [9, 2, 5]


def test_only_so_many_batches_are_sampled_and_only_the_hottest_rows_are_recorded(tmp_path: Path) -> None:
    samples, generator = samples_of(tmp_path), np.random.default_rng(1)
    counts: Counter[int] = Counter()
    while samples.wants_more:
        ids = np.minimum(generator.zipf(1.5, (20, 1)), 100) - 1
        counts.update(map(int, ids.ravel()))
        samples.add(0, 20, [ids, np.zeros((20, 2), np.int64)])
    records = read_records(tmp_path / "x.jsonl")[0]
    assert len(records) == MOST_SAMPLES
    users = found(tmp_path)["users"]
    assert (users["ids"], users["distinct"]) == (20 * MOST_SAMPLES, len(counts))
    hot = users["hot"]
    assert isinstance(hot, dict)
    assert sorted(hot.values(), reverse=True) == [count for _, count in counts.most_common(5)]
    assert all(counts[int(row)] == count for row, count in hot.items())


@pytest.mark.parametrize("load", [0.01, 0.3, 2.0])
def test_the_part_of_colliding_ids_is_estimated_from_the_rows_that_have_an_id(
    tmp_path: Path, load: float
) -> None:
    generator, ranges = np.random.default_rng(7), [(1, 20_000), (20_006, 3_000)]
    # Each id has a row of its range, drawn at random.
    rows = [first + generator.integers(0, size, round(load * size)) for first, size in ranges]
    table = Table("hashed", 30_000, 4, lambda _context, ids: ids, hashed=ranges)
    writer = RecordWriter(tmp_path / "x.jsonl", TaskIdentity("test", "worker", 0))
    samples = TableSamples(writer, [(table, 0)], ps_count=2)
    # Each is named three times, as are rows outside of the ranges, which are those of missing values.
    for _ in range(3):
        samples.add(0, 1, [np.concatenate([*rows, [0, 20_005]])[np.newaxis]])
    shared = sum(int(np.sum(its > 1)) for its in ((np.bincount(of))[of] for of in rows))
    assert found(tmp_path)["hashed"]["colliding"] == pytest.approx(shared / sum(map(len, rows)), abs=0.02)


@pytest.mark.parametrize(
    ("taken", "sizes", "part"),
    [
        ([], [], 0.0),
        ([0, 0], [5, 9], 0.0),
        ([1], [1000], 0.0),
        ([1, 0], [1, 5], 0.0),
        # 500 of 1000 rows are taken by 692.8 ids, of which each is alone with the probability 0.5005.
        ([500], [1000], 1 - 0.5 / 0.999),
        # Ranges count by their ids: 692.8, and one.
        ([500, 1], [1000, 1000], 1 - (692.8005 * 0.5 / 0.999 + 1) / 693.8005),
    ],
)
def test_the_part_follows_from_the_rows_that_are_taken(
    taken: list[int], sizes: list[int], part: float
) -> None:
    assert colliding_share(taken, sizes) == pytest.approx(part, abs=1e-5)


def test_almost_all_ids_of_a_full_range_collide() -> None:
    assert 0.99 < colliding_share([1000], [1000]) < 1


@pytest.mark.parametrize("model", ["wide_deep", "dlrm"])
def test_only_ids_in_files_are_hashed(tmp_path: Path, model: str) -> None:
    click_files.main([str(tmp_path), "--train=50", "--test=10", "--rows=20000"])
    for folder, ranges in (("", 0), (str(tmp_path), 26)):
        settings = TrainingSettings(model=model, table_rows=20_000, data_dir=folder)
        context = ModelContext(settings, REGISTRY[model].load(settings, 1), Devices((), ""))
        for table in REGISTRY[model].tables(context):
            assert len(table.hashed) == ranges
            if ranges:
                first, size = table.hashed[-1]
                assert (table.hashed[0][0], first + size) == (1, table.rows)


def test_a_model_without_tables_has_no_samples(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "x.jsonl", TaskIdentity("test", "worker", 0))
    assert not TableSamples(writer, [], ps_count=1).wants_more


def test_workers_record_the_rows_that_their_batches_need_and_the_chief_what_each_ps_holds(
    tmp_path: Path,
) -> None:
    flags = ["--model=wide_deep", "--steps=20", "--batch_size=64", "--table_rows=20000", "--steps_per_call=1"]
    with Cluster(tmp_path, 2, 1, flags) as cluster:
        cluster.start()
        assert set(cluster.wait().values()) == {FINISHED}, cluster.outputs()
        records = cluster.records("worker0", "tables")
        began = cluster.only("worker0", "initialised")
    settings = TrainingSettings.from_mapping(dict(flag.removeprefix("--").split("=") for flag in flags))
    rows = rows_of(settings.table_rows)
    source = REGISTRY["wide_deep"].load(settings, 1).train_of(0)
    record = records[-1]
    count = record.integer("samples")
    assert count >= 3
    assert record.integer("examples") == 64 * count
    ids = source.read(0, 64 * count).features[:, 13:] + np.array([0, *np.cumsum(rows)[:-1]])
    times = Counter(map(int, ids.ravel()))
    tables = record.fields["tables"]
    assert isinstance(tables, dict)
    for of in tables.values():
        assert (of["rows"], of["ids"], of["distinct"]) == (sum(rows), 64 * 26 * count, len(times))
        assert {int(row): its for row, its in of["hot"].items()}.items() <= times.items()
        assert min(of["hot"].values()) == times.most_common(5)[-1][1]
        unique = [np.unique(ids[64 * batch : 64 * (batch + 1)]) for batch in range(count)]
        assert sum(of["of_ps"].values()) == sum(map(len, unique))
    held = began.fields["ps_parameters"]
    assert isinstance(held, dict)
    widths = [of["width"] for of in tables.values()]
    assert sum(of["rows"] for of in held.values()) == sum(rows) * len(widths)
    assert (
        sum(of["table_bytes"] for of in held.values()) == sum(rows) * sum(widths) * 4 * 2
    )  # with Adagrad's slot
    assert all(0 < of["table_bytes"] < of["bytes"] for of in held.values())
