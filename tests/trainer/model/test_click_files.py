"""Criteo's files: what is written is read again, in parts, packed or not; damaged lines are found."""

import gzip
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from trainer.contract.data_files import CATEGORIES, NUMBERS
from trainer.contract.exit_codes import CONFIGURATION, INPUT
from trainer.contract.settings import TrainingSettings
from trainer.contract.table_models import rows_of
from trainer.model.click_files import clicks_in, load, main
from trainer.model.click_truth import MISSING_NUMBER, Truth
from trainer.model.clicks import Clicks
from trainer.model.data import Examples, Source, batches, seed_and_shard
from trainer.process.failure import TaskFailure

v1 = tf.compat.v1

ROWS = rows_of(50_000)
GOOD = b"1\t" + b"\t".join([b"7"] * NUMBERS) + b"\t" + b"\t".join([b"0a1b2c3d"] * CATEGORIES)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clicks")
    assert main([str(folder), "--train=3000", "--test=500", "--rows=50000", "--seed=3"]) == 0
    return folder


def _whole(source: Source) -> Examples:
    return source.read(0, len(source))


def _with(folder: Path, train: bytes, name: str = "train.tsv") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(train)
    (folder / "test.tsv").write_bytes(GOOD + b"\n")
    return folder


def _refused(folder: Path) -> str:
    with pytest.raises(TaskFailure) as failure:
        clicks_in(folder, ROWS)
    assert failure.value.code == INPUT
    return failure.value.reason


def _trained_on(source: Source, settings: TrainingSettings, worker: tuple[int, int], count: int) -> Examples:
    """The next examples of a worker (of how many, index), in batches of 100."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(settings.seed + worker[1])
        dataset, feeds = batches(source, 100, *seed_and_shard(settings, *worker))
        iterator = v1.data.make_initializable_iterator(dataset)
        batch = iterator.get_next()
        with v1.Session(graph=graph) as session:
            session.run(iterator.initializer, feeds)
            read = [session.run(batch) for _ in range(count // 100)]
    features, labels = (np.concatenate(parts) for parts in zip(*read, strict=True))
    return Examples(features, labels)


def _sorted(examples: Examples) -> list[list[float]]:
    columns = np.column_stack([examples.labels, examples.features])
    return sorted(columns.tolist())


def test_what_is_written_is_read_again(written: Path) -> None:
    truth = Truth(ROWS, 3)
    data = clicks_in(written, ROWS)
    for source, first, count in ((data.train, 0, 3000), (data.test, 2**48, 500)):
        made, read = Clicks(truth, first, count).read(0, count), _whole(source)
        assert read.features.dtype == np.int64 and read.labels.dtype == np.float32
        assert (read.labels == made.labels).all()
        assert (read.features[:, :NUMBERS] == made.features[:, :NUMBERS]).all()
        assert (made.features == MISSING_NUMBER).any()
        for column, rows in enumerate(ROWS, NUMBERS):
            ids, found = made.features[:, column], read.features[:, column]
            assert ((ids == 0) == (found == 0)).all(), "what is missing"
            assert found.max() < rows
            # An id always gets the same row.
            pairs = set(zip(ids.tolist(), found.tolist(), strict=True))
            assert len(pairs) == len(set(ids.tolist()))


def _fingerprint(value: bytes) -> int:
    """FarmHash's Fingerprint64 of eight bytes, from its definition."""
    word, k2, whole = int.from_bytes(value, "little"), 0x9AE16A3B2F90404F, 2**64 - 1

    def rotated(of: int, by: int) -> int:
        return (of >> by | of << 64 - by) & whole

    factor, first = k2 + 2 * len(value), (word + k2) & whole
    low = (rotated(word, 37) * factor + first) & whole
    high = (rotated(first, 25) + word) * factor & whole
    mixed = (low ^ high) * factor & whole
    mixed = (mixed ^ mixed >> 47 ^ high) * factor & whole
    return (mixed ^ mixed >> 47) * factor & whole


def test_the_row_of_a_value_is_a_stable_hash(tmp_path: Path) -> None:
    """If this changes, checkpoints of earlier runs no longer fit the files."""
    for value in (b"0a1b2c3d", b"68fd1e64", b"ffffffff"):
        lines = GOOD.replace(b"0a1b2c3d", value)
        read = _whole(clicks_in(_with(tmp_path, lines), ROWS).train)
        expected = [1 + _fingerprint(value) % 2**62 % (rows - 1) for rows in ROWS]
        assert read.features[0, NUMBERS:].tolist() == expected


def test_parts_and_places_of_the_files_are_read_alike(written: Path) -> None:
    train = clicks_in(written, ROWS).train
    whole = _whole(train)
    for first, count in ((0, 10), (10, 10), (2995, 10), (5, 3), (1000, 2500)):
        places = np.arange(first, first + count) % 3000
        assert (train.read(first, count).features == whole.features[places]).all()
    for index in range(7):
        part = _whole(train.part(index, 7))
        assert (part.features == whole.features[index::7]).all()
    of_part = _whole(train.part(1, 3).part(2, 4))
    assert (of_part.features == whole.features[1::3][2::4]).all()


def test_workers_train_on_each_line_once_in_an_epoch(written: Path) -> None:
    train = clicks_in(written, ROWS).train
    sharded = TrainingSettings(seed=7, shard_data=True)
    for _ in range(2):
        parts = [_trained_on(train, sharded, (3, index), 2000) for index in range(3)]
        for epoch in range(2):
            read = [of for part in parts for of in _sorted(part.read(1000 * epoch, 1000))]
            assert sorted(read) == _sorted(_whole(train)), epoch


def test_the_same_files_twice_give_the_same_examples(written: Path) -> None:
    settings = TrainingSettings(seed=7)
    first, again, other = (
        _trained_on(clicks_in(written, ROWS).train, settings, (2, index), 4000) for index in (0, 0, 1)
    )
    assert (first.features == again.features).all() and (first.labels == again.labels).all()
    assert (first.features != other.features).any(), "each worker has an order of its own"
    whole = _sorted(_whole(clicks_in(written, ROWS).train))
    assert [_sorted(of.read(0, 3000)) for of in (first, other)] == [whole, whole]


def test_files_may_be_several_packed_and_of_windows(written: Path, tmp_path: Path) -> None:
    lines = (written / "train.tsv").read_bytes().splitlines()
    parts = [b"\n".join(lines[:1000]) + b"\n", b"\r\n".join(lines[1000:2000]), b"\n".join(lines[2000:])]
    packed = gzip.compress(parts[1][:100_000]) + gzip.compress(parts[1][100_000:])
    (tmp_path / "train-0.tsv").write_bytes(parts[0])
    (tmp_path / "train-1.tsv.gz").write_bytes(packed)
    (tmp_path / "train-2").write_bytes(gzip.compress(parts[2]))
    (tmp_path / "test.txt").write_bytes((written / "test.tsv").read_bytes())
    whole, train = _whole(clicks_in(written, ROWS).train), clicks_in(tmp_path, ROWS).train
    assert (_whole(train).features == whole.features).all()
    assert _sorted(_trained_on(train, TrainingSettings(), (1, 0), 3000)) == _sorted(whole)


DAMAGED = {
    "a column too few": GOOD[2:],
    "a column too many": GOOD + b"\t",
    "empty": b"",
    "another label": b"2" + GOOD[1:],
    "no label": GOOD[1:],
    "a number with a point": GOOD.replace(b"\t7", b"\t7.0", 1),
    "a number of ten digits": GOOD.replace(b"\t7", b"\t1234567890", 1),
    "a value of seven digits": GOOD.replace(b"0a1b2c3d", b"a1b2c3d", 1),
    "a value that is not hexadecimal": GOOD.replace(b"0a1b2c3d", b"0a1b2c3g", 1),
    "NUL": GOOD.replace(b"0a1b2c3d", b"0a1b2c3\0", 1),
    "NUL at the end": GOOD + b"\0",
    "not UTF-8": GOOD.replace(b"7", b"\xff\xfe", 1),
    "other digits": GOOD.replace(b"7", "\u0667".encode(), 1),
    "a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "long": GOOD.replace(b"7", b"7" * 60_000, 1),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_line_is_left_out_and_named(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = GOOD.replace(b"0a1b2c3d", b"00000000")
    lines = [GOOD] * 700 + [DAMAGED[what]] + [other] * 700
    train = clicks_in(_with(tmp_path, b"\n".join(lines)), ROWS).train
    assert len(train) == 1400
    printed = capsys.readouterr().out
    start = f"1 of 1401 lines in {tmp_path}/train* are damaged and left out. The first: "
    assert printed.startswith(f"{start}{tmp_path}/train.tsv line 701 (")
    assert len(printed) < 400
    assert printed.isprintable() or printed.rstrip("\n").isprintable()
    whole = _whole(train)
    assert (whole.features[:700] == whole.features[0]).all()
    assert (whole.features[700:] == whole.features[-1]).all()
    assert _sorted(_trained_on(train, TrainingSettings(), (1, 0), 1400)) == _sorted(whole)
    parts = [train.part(index, 3) for index in range(3)]
    assert [len(part) for part in parts] == [467, 466, 467]
    assert sorted(chain(*(_sorted(_whole(part)) for part in parts))) == _sorted(whole)


def test_too_many_damaged_lines_are_refused(tmp_path: Path) -> None:
    damaged = [b"x\t\x1b[31m", GOOD + b"\t", b"", b"y"]
    reason = _refused(_with(tmp_path, b"\n".join([GOOD] * 995 + damaged)))
    start = r"1\t7\t7\t7\t7\t7\t7\t7\t7\t7\t7\t7\t7\t7\t0a1b2c3d\t0a1b2..."
    assert reason == (
        f"4 of 999 lines in {tmp_path}/train* are damaged, expected at most 0.1%; a line has a label, 13 "
        "integers and 26 values of 8 hexadecimal digits, with tabs between. The first: "
        rf"{tmp_path}/train.tsv line 996 (2 columns): x\t\x1b[31m; "
        rf"{tmp_path}/train.tsv line 997 (41 columns): {start}; {tmp_path}/train.tsv line 998 (1 column): "
    )


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    assert f"{tmp_path} has no file train*" in _refused(tmp_path)
    packed = gzip.compress(b"\n".join([GOOD] * 5000))
    for content in (packed[:-20], packed[:-8] + bytes(8), packed[:10] + b"\xff" * 90):
        assert f"{tmp_path}/train.tsv cannot be decompressed" in _refused(_with(tmp_path, content))
    assert f"{tmp_path}/train.tsv line 2 is longer than 65536 bytes" in _refused(
        _with(tmp_path, GOOD + b"\n" + b"7" * 3_000_000)
    )
    assert "train* has no line; expected" in _refused(_with(tmp_path, b""))


def test_a_file_that_changed_since_it_was_checked_is_refused(tmp_path: Path) -> None:
    train = clicks_in(_with(tmp_path, b"\n".join([GOOD] * 10)), ROWS).train
    _with(tmp_path, GOOD)
    with pytest.raises(TaskFailure, match=r"train\.tsv had 10 lines, and has 1 now"):
        train.read(0, 10)


def test_clicks_are_generated_if_no_folder_is_named(written: Path) -> None:
    made = load(TrainingSettings(), ROWS, 100, 10)
    assert (len(made.train), len(made.test)) == (100, 10)
    read = load(TrainingSettings(data_dir=str(written), replication="in_graph"), ROWS, 100, 10)
    assert (len(read.train), len(read.test)) == (3000, 500)


@pytest.mark.parametrize(
    "settings", [TrainingSettings(replication="in_graph"), TrainingSettings(existing_servers=True)]
)
def test_no_clicks_are_generated_for_a_graph_that_another_process_runs(settings: TrainingSettings) -> None:
    with pytest.raises(TaskFailure) as failure:
        load(settings, ROWS, 100, 10)
    assert failure.value.code == CONFIGURATION
    assert failure.value.reason == (
        "trainer_data_dir is empty: clicks are only generated in the process that has the graph, not with "
        "in_graph, nor with trainer_existing_servers; expected a trainer_data_dir (--data_dir) with files of "
        "clicks"
    )
