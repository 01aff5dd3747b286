"""Windows of steps: their staleness and waiting times cover all their steps."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from trainer.contract import step_windows
from trainer.contract.records import Record, RecordWriter, TaskIdentity, read_records
from trainer.contract.step_windows import Read, StepWindows

_TAKEN = 1000
_WINDOW = 200 * 10  # of the last step that makes ten steps a window


def _records(path: Path) -> list[Record]:
    records, complaints = read_records(path)
    assert complaints == []
    return records


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "worker0.jsonl"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Set the time that windows begin and end at, which stands still else."""
    now = [100.0]
    monkeypatch.setattr(step_windows, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.fixture
def windows(path: Path) -> StepWindows:
    """Of ten steps each: the small ones, of the first steps, are over."""
    return StepWindows(RecordWriter(path, TaskIdentity("test", "worker", 0)), _WINDOW, 100, _TAKEN)


def test_the_histogram_counts_every_step_of_its_window(windows: StepWindows, path: Path) -> None:
    for local_step, staleness in enumerate((0, 1, 1, 2, 3, 0, 7, 0, 8, 0), start=1):
        before, loss = 90 + local_step, float(local_step)
        windows.add(loss, before, before + 1 + staleness, waiting_seconds=0.25)
        windows.flush_in_time()
    for staleness in (1, 0, 0):
        windows.add(1.0, 100, 101 + staleness, waiting_seconds=0.12345678)
    windows.flush()
    windows.flush()
    full, last = _records(path)
    told = {"local_step": _TAKEN + 10, "steps": 10, "global_step_before": 91, "global_step_after": 101}
    assert told.items() <= full.fields.items()
    assert (full.integer("examples"), full.number("loss"), full.number("loss_mean")) == (1000, 10.0, 5.5)
    assert full.fields["staleness_histogram"] == [4, 2, 2, 1, 1]
    assert full.fields["waiting_seconds"] == 2.5
    assert (full.number("staleness_mean"), full.integer("staleness_max")) == (2.2, 8)
    assert (last.integer("local_step"), last.integer("global_step_before")) == (_TAKEN + 13, 100)
    assert last.fields["staleness_histogram"] == [2, 1]
    assert (last.fields["waiting_seconds"], last.fields["staleness_mean"]) == (0.37037, 0.3333)


def test_missed_steps_of_the_worker_itself_do_not_count_as_staleness(
    windows: StepWindows, path: Path
) -> None:
    # Its own are 11, 14, 18, 20 and 24. The third missed 14, and of others 13 and 15 to 17.
    for read, before, after in ((10, 10, 11), (10, 11, 14), (12, 14, 18), (18, 18, 20), (19, 20, 24)):
        windows.add(1.0, before, after, read=Read(read, int(read < before)))
    windows.flush()
    windows.add(1.0, 24, 25, read=Read(24, 0))
    windows.flush()
    full, last = _records(path)
    assert (full.integer("own_steps_behind"), full.fields["staleness_histogram"]) == (3, [1, 1, 2, 1])
    assert (full.number("staleness_mean"), full.integer("staleness_max")) == (2.0, 4)
    assert (full.integer("global_step_before"), full.integer("global_step_after")) == (10, 24)
    assert "own_steps_behind" not in last.fields


def test_the_pushes_of_one_pull_miss_the_steps_of_others_alone(windows: StepWindows, path: Path) -> None:
    # Read at global step 10; its own are 11, 13 and 16, and 12, 14 and 15 are of others.
    for missed, (before, after) in enumerate(((10, 11), (11, 13), (13, 16))):
        windows.add(1.0, before, after, read=Read(10, missed))
    windows.flush()
    (record,) = _records(path)
    assert (record.integer("own_steps_behind"), record.fields["staleness_histogram"]) == (2, [1, 1, 1])
    assert (record.number("staleness_mean"), record.integer("staleness_max")) == (round(4 / 3, 4), 3)


def test_a_step_of_several_batches_counts_the_examples_of_all(path: Path) -> None:
    windows = StepWindows(RecordWriter(path, TaskIdentity("test", "worker", 0)), 0, 100, batches=8)
    windows.add(1.0, 0, 1)
    windows.flush()
    windows.add_made_together(4, 3, 1.0, 1, 4)
    windows.flush()
    counts = [
        [record.integer(name) for name in ("steps", "batches", "examples")] for record in _records(path)
    ]
    assert counts == [[1, 8, 800], [3, 24, 2400]]


def test_steps_of_one_call_are_in_one_window(windows: StepWindows, path: Path) -> None:
    for local_step in range(1, 26):
        windows.add(float(local_step), 2 * local_step, 2 * local_step + 1)
        if local_step % 8 == 0:
            windows.flush_in_time()
    windows.flush()
    full, last = _records(path)
    assert [record.integer("steps") for record in (full, last)] == [16, 9]
    assert (full.integer("global_step_before"), full.integer("global_step_after")) == (2, 33)
    assert (full.number("loss"), full.number("loss_mean"), full.integer("local_step")) == (
        16.0,
        8.5,
        _TAKEN + 16,
    )
    assert full.fields["staleness_histogram"] == [16]


def test_a_window_ends_after_thirty_seconds(windows: StepWindows, path: Path, clock: list[float]) -> None:
    for local_step, seconds in enumerate((129.9, 130.0, 130.5, 161.2345678), start=1):
        clock[0] = seconds
        windows.add(1.0, local_step - 1, local_step)
        windows.flush_in_time()
    ended = [(record.integer("steps"), record.number("seconds")) for record in _records(path)]
    assert ended == [(2, 30.0), (2, 31.234568)]


def test_steps_made_together_have_staleness_0_and_no_waiting_time(windows: StepWindows, path: Path) -> None:
    windows.add_made_together(_TAKEN + 4, 4, 1.0, 0, 4)
    windows.add_made_together(_TAKEN + 10, 6, 1.0, 4, 10)
    (together,) = _records(path)
    assert together.fields["staleness_histogram"] == [10]
    assert (together.integer("local_step"), together.integer("examples")) == (_TAKEN + 10, 1000)
    assert "waiting_seconds" not in together.fields


def test_windows_of_a_run_of_known_length_grow_up_to_a_share_of_that_length(path: Path) -> None:
    identity = TaskIdentity("test", "worker", 0, program="0a1b2c3d4e5f")
    windows = StepWindows(RecordWriter(path, identity), 600)
    for step in range(200):
        windows.add_unread(0.5, step, step + 1, 100)
    sizes = [record.integer("steps") for record in _records(path)]
    assert (sizes[:49], max(sizes), sizes[-20:]) == ([1] * 49, 3, [3] * 20)


def test_windows_of_a_program_have_no_staleness_and_no_waiting_time(path: Path) -> None:
    identity = TaskIdentity("test", "worker", 0, program="0a1b2c3d4e5f")
    windows = StepWindows(RecordWriter(path, identity), 0)
    for step in range(55):
        windows.add_unread(None if step % 2 else 0.5, step, step + 1, 100)
    records = _records(path)
    # Nobody knows how long the run will be: a window grows with what was done.
    assert [record.integer("steps") for record in records] == [1] * 49 + [2] * 3
    assert [record.integer("local_step") for record in records[-3:]] == [51, 53, 55]
    assert ["loss" in record.fields for record in records[:2]] == [True, False]
    assert not {"staleness_histogram", "waiting_seconds"} & set().union(
        *(record.fields for record in records)
    )
