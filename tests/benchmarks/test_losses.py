"""When a run reached a loss, by the records of its steps."""

import math
from pathlib import Path

import pytest

from benchmarks.losses import LossReached, recorded_steps, when_reached
from trainer.contract.records import Record, RecordWriter, TaskIdentity
from trainer.contract.step_windows import StepWindows

BATCH = 100
OF_PROGRAM = TaskIdentity("run", "worker", 0, program="benchmark")


def steps(walls: float, count: int = 400, workers: int = 1, noise: float = 0.0) -> list[Record]:
    """Windows of four global steps each: the loss halves in 100 of them, a step takes `walls` seconds."""
    return [
        Record(
            "step",
            "run",
            "worker",
            0,
            "host",
            1,
            "",
            "",
            1000.0 + walls * after,
            0.0,
            {
                "local_step": after // workers,
                "steps": 4 // workers,
                "global_step_before": after - 4,
                "global_step_after": after,
                "examples": 4 // workers * BATCH,
                "seconds": 4 * walls,
                "loss_mean": 2.0 ** -((after - 2) / 100) * (1 + noise * (-1) ** (after // 4)),
            },
        )
        for after in range(4, count + 1, 4)
    ]


def test_the_time_is_that_of_the_step_at_which_the_smoothed_loss_falls_to_the_given_one() -> None:
    found = when_reached({"worker0": steps(0.5)}, 0.25, BATCH)
    assert found is not None
    assert found.examples == pytest.approx(200 * BATCH, rel=0.03)
    # Since the first record, that of step 4.
    assert found.seconds == pytest.approx(0.5 * (found.examples / BATCH - 4), abs=1e-6)


def test_noise_of_single_windows_does_not_count() -> None:
    calm, noisy = (when_reached({"worker0": steps(0.5, noise=noise)}, 0.25, BATCH) for noise in (0.0, 0.3))
    assert calm is not None
    assert noisy is not None
    assert noisy.seconds == pytest.approx(calm.seconds, rel=0.1)


def test_the_windows_of_all_workers_make_one_curve() -> None:
    one = when_reached({"worker0": steps(0.5)}, 0.25, BATCH)
    two = {"chief0": [], "worker0": steps(0.5, workers=2), "b": steps(0.5, workers=2)}
    assert when_reached(two, 0.25, BATCH) == one


def test_a_loss_is_reached_only_once_the_mean_below_it_is_complete() -> None:
    every = steps(0.5)
    counts = [count for count in range(len(every)) if when_reached({"worker0": every[:count]}, 0.25, BATCH)]
    assert counts == list(range(counts[0], len(every)))
    first, last = (when_reached({"worker0": every[:count]}, 0.25, BATCH) for count in (counts[0], len(every)))
    assert first == last
    assert when_reached({"worker0": every}, 0.01, BATCH) is None
    assert when_reached({"worker0": []}, 0.25, BATCH) is None


def test_records_are_read_from_the_folder_of_each_task(tmp_path: Path) -> None:
    for task in ("ps0", "worker0"):
        (tmp_path / task).mkdir()
    writer = RecordWriter(tmp_path / "worker0" / "events" / "worker0.jsonl", OF_PROGRAM)
    windows = StepWindows(writer, 0, BATCH)
    for step in range(1, 101):
        windows.add_unread(math.exp(-step / 20), step - 1, step, BATCH)
    found = recorded_steps(tmp_path)
    assert found["ps0"] == []
    assert sum(record.integer("steps") for record in found["worker0"]) > 90
    assert isinstance(when_reached(found, 0.2, BATCH), LossReached)
