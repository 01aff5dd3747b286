"""The rows of a checkpoint's tables are read from its files, some at a time."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.row_files import Numbers, write_delta, write_tables
from trainer.model.fingerprint import fingerprint_of, with_computed_sums
from trainer.model.tables import checkpoint_files, checkpoint_rows
from trainer.model.tables.checkpoint_files import SavedTable
from trainer.model.tables.checkpoint_rows import SavedRows

ROWS, PARTS = 103, 3


@pytest.fixture(params=["table", "slot", "table with deltas"])
def saved(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, SavedTable, Numbers]:
    """A table of width 5, or one number for each row, in several files of each part and of each delta."""
    monkeypatch.setattr(checkpoint_files, "MOST_BYTES", 100)
    monkeypatch.setattr(checkpoint_files, "ROWS_OF_DELTA", 4)
    generator = np.random.default_rng(3)
    whole = generator.integers(0, 2**40, ROWS)
    if request.param != "slot":
        whole = generator.standard_normal((ROWS, 5)).astype(np.float32)
    path = tmp_path / "model.ckpt-7"
    (table,) = write_tables(path, {"tables_5": whole}, PARTS)
    assert len(table.sha256) > 2 * PARTS
    for rows in (40, 2, 40) if request.param == "table with deltas" else ():
        changed = generator.permutation(ROWS)[:rows]
        whole[changed] += 1
        table = write_delta(path, table, whole, changed)
    return path, table, whole


def test_rows_are_found_in_any_order_and_more_than_once(saved: tuple[Path, SavedTable, Numbers]) -> None:
    path, table, whole = saved
    rows = SavedRows(path, table)
    for wanted in (np.random.default_rng(4).integers(0, ROWS, 500), np.array([ROWS - 1]), np.arange(0)):
        np.testing.assert_array_equal(rows.read(wanted), whole[wanted])
    for wrong in (ROWS, -1):
        with pytest.raises(IndexError, match="has rows 0 to 102"):
            rows.read(np.array([0, wrong]))


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_a_part_of_any_number_of_parts_is_read_like_an_array(
    saved: tuple[Path, SavedTable, Numbers], parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, table, whole = saved
    monkeypatch.setattr(checkpoint_rows, "_AT_ONCE", 4)
    for number in range(parts):
        part, expected = SavedRows(path, table).part(number, parts), whole[number::parts]
        assert (part.shape, part.dtype) == (expected.shape, expected.dtype)
        for some in (slice(0, 7), slice(7, len(expected) + 9), slice(5, 5)):
            np.testing.assert_array_equal(part[some], expected[some])


def test_the_chunks_have_each_row_once_and_add_up_to_the_fingerprint(
    saved: tuple[Path, SavedTable, Numbers], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, table, whole = saved
    monkeypatch.setattr(checkpoint_rows, "_AT_ONCE", 2)
    found = np.zeros_like(whole)
    places = []
    for place, values in SavedRows(path, table).chunks():
        its = place.first_row + place.parts * np.arange(place.rows)
        found[its] = values
        places += its.tolist()
    assert sorted(places) == list(range(ROWS))
    np.testing.assert_array_equal(found, whole)
    assert fingerprint_of({}, with_computed_sums(path, [table])) == fingerprint_of({"tables_5": whole})


def _remove(file: Path) -> None:
    file.unlink()


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [_remove, _cut])
def test_a_file_that_is_missing_or_short_is_refused_at_once(
    saved: tuple[Path, SavedTable, Numbers], damage: Callable[[Path], None]
) -> None:
    path, table, _ = saved
    damage(sorted(path.parent.glob("*.rows"))[-1])
    with pytest.raises((OSError, ValueError)):
        SavedRows(path, table)


def test_rows_stay_readable_if_the_chief_removes_the_checkpoint(
    saved: tuple[Path, SavedTable, Numbers],
) -> None:
    path, table, whole = saved
    rows = SavedRows(path, table)
    for file in path.parent.glob("*.rows"):
        file.unlink()
    np.testing.assert_array_equal(rows.read(np.arange(ROWS)), whole)
