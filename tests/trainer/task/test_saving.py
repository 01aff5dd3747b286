"""Checkpoints are due soon after a start, and then less and less often."""

import itertools

import pytest

from trainer.contract.settings import TrainingSettings
from trainer.task.saving import CheckpointSchedule


def _saves(schedule: CheckpointSchedule, seconds: float, stopped_seconds: float = 0.0) -> list[int]:
    """Return the times at which saves begin in so many seconds, where each second brings a step."""
    schedule.start(0, 0.0)
    times = []
    for at in itertools.takewhile(lambda at: at <= seconds, itertools.count()):
        if schedule.is_due_by_time(at) or schedule.steps_left(at) <= 0:
            times.append(at)
            schedule.count(at, at, stopped_seconds)
    return times


def test_the_first_checkpoints_are_due_early() -> None:
    schedule = CheckpointSchedule(TrainingSettings())
    assert _saves(schedule, 200) == [5, 15, 35, 75, 135, 195]
    assert _saves(schedule, 20) == [5, 15]  # again, after the loss of a ps


@pytest.mark.parametrize(
    ("interval", "stopped_seconds", "times"),
    [
        (2, 0, [2, 4, 6, 8]),
        (60, 0.3, [5, 35, 95]),  # 1 % of 30 s, and then of 60 s
        (60, 5, [5, 65]),  # the setting stays the longest
    ],
)
def test_a_slow_save_makes_the_interval_longer_up_to_its_setting(
    interval: float, stopped_seconds: float, times: list[int]
) -> None:
    schedule = CheckpointSchedule(TrainingSettings(checkpoint_interval_seconds=interval))
    assert _saves(schedule, times[-1] + 1, stopped_seconds) == times


def test_an_interval_in_steps_applies_in_addition_to_the_time() -> None:
    schedule = CheckpointSchedule(TrainingSettings(checkpoint_interval_steps=30))
    assert _saves(schedule, 120) == [5, 15, 30, 60, 90, 120]
    schedule.start(120, 120)
    assert schedule.steps_left(140) == 10
