"""A task is given up after repeated deaths without progress between them, and only then."""

import json
from pathlib import Path

import pytest

from trainer.contract.exit_codes import CLUSTER_BROKE, GIVEN_UP, INPUT, STOPPED
from trainer.process.failure import TaskFailure
from trainer.process.lives import Lives


def _dies_in_vain(directory: Path, times: int) -> None:
    for _ in range(times):
        lives = Lives(directory, "worker1")
        lives.begin()
        lives.end(CLUSTER_BROKE)


def _is_given_up(directory: Path) -> None:
    with pytest.raises(TaskFailure, match=r"^it was started 6 times in a row without getting on$") as failure:
        Lives(directory, "worker1").begin()
    assert failure.value.code == GIVEN_UP


def test_the_seventh_start_after_six_without_progress_is_given_up(tmp_path: Path) -> None:
    _dies_in_vain(tmp_path, 6)
    _is_given_up(tmp_path)
    Lives(tmp_path, "ps0").begin()  # another task has lives of its own


def test_a_task_that_makes_progress_may_die_any_number_of_times(tmp_path: Path) -> None:
    for _ in range(20):
        _dies_in_vain(tmp_path, 5)
        lives = Lives(tmp_path, "worker1")
        lives.begin()
        lives.note_progress()
    _dies_in_vain(tmp_path, 6)
    _is_given_up(tmp_path)


@pytest.mark.parametrize("code", [0, STOPPED, INPUT, GIVEN_UP])
def test_a_task_that_people_start_again_is_counted_from_zero(tmp_path: Path, code: int) -> None:
    _dies_in_vain(tmp_path, 5)
    lives = Lives(tmp_path, "worker1")
    lives.begin()
    lives.end(code)
    _dies_in_vain(tmp_path, 6)


@pytest.mark.parametrize("content", ['{"in_vain": -9}', '{"in_vain": "9"}', "[", ""])
def test_a_damaged_count_reads_as_zero(tmp_path: Path, content: str) -> None:
    (tmp_path / "endings").mkdir()
    (tmp_path / "endings" / "worker1.lives.json").write_text(content)
    _dies_in_vain(tmp_path, 6)
    _is_given_up(tmp_path)


def test_the_failure_names_the_reason_of_the_last_death(tmp_path: Path) -> None:
    _dies_in_vain(tmp_path, 6)
    (tmp_path / "events").mkdir()
    failed = {"event": "failed", "class": "cluster_broke", "reason": "it cannot listen on port 2222"}
    (tmp_path / "events" / "worker1.jsonl").write_text(json.dumps(failed) + "\n")
    with pytest.raises(TaskFailure, match=r"; the last time: cluster_broke: it cannot listen on port 2222$"):
        Lives(tmp_path, "worker1").begin()


def test_starts_are_not_counted_without_a_run_directory() -> None:
    for _ in range(10):
        Lives(None, "worker1").begin()
