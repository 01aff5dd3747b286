"""Windows of steps: what they say of staleness and waiting is of all their steps."""

from pathlib import Path

import pytest

from trainer.contract.records import Record, RecordWriter, TaskIdentity, read_records
from trainer.contract.step_windows import StepWindows

_WINDOW = 200 * 10  # of the last step that makes ten steps a window


def _records(path: Path) -> list[Record]:
    records, complaints = read_records(path)
    assert complaints == []
    return records


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "worker0.jsonl"


@pytest.fixture
def windows(path: Path) -> StepWindows:
    return StepWindows(RecordWriter(path, TaskIdentity("test", "worker", 0)), _WINDOW, 100)


def test_the_histogram_counts_every_step_of_its_window(windows: StepWindows, path: Path) -> None:
    for local_step, staleness in enumerate((0, 1, 1, 2, 3, 0, 7, 0, 8, 0), start=1):
        windows.add(local_step, 1.0, 100, 101 + staleness, waiting_seconds=0.25)
    windows.add(11, 1.0, 100, 101, waiting_seconds=0.0)
    windows.flush()
    full, last = _records(path)
    assert full.fields["staleness_histogram"] == [4, 2, 2, 1, 1]
    assert full.fields["waiting_seconds"] == 2.5
    assert (full.number("staleness_mean"), full.integer("staleness_max")) == (2.2, 8)
    assert last.fields["staleness_histogram"] == [1]
    assert last.fields["waiting_seconds"] == 0


def test_steps_that_all_make_together_are_never_stale_and_their_waiting_is_not_known(
    windows: StepWindows, path: Path
) -> None:
    windows.add_made_together(4, 4, 1.0, 0, 4)
    windows.add_made_together(10, 6, 1.0, 4, 10)
    (together,) = _records(path)
    assert together.fields["staleness_histogram"] == [10]
    assert "waiting_seconds" not in together.fields


def test_what_a_program_tells_of_its_steps_has_neither(path: Path) -> None:
    identity = TaskIdentity("test", "worker", 0, program="0a1b2c3d4e5f")
    windows = StepWindows(RecordWriter(path, identity), 0)
    windows.add_unread(1.0, 0, 1, 100)
    windows.flush()
    (unread,) = _records(path)
    assert not {"staleness_histogram", "waiting_seconds"} & set(unread.fields)
