"""The newest or the named run is judged, once it is over."""

import os
from pathlib import Path

import pytest

from psfleet.evidence.runs_directory import NoSuchRunError, find_run, newest_first
from psfleet.run.active_runs import RUN_ID_RULE


def make(runs: Path, *names: str) -> None:
    for name in names:
        (runs / name).mkdir()
        (runs / name / "plan.json").write_text("{}")
        os.utime(runs / name / "plan.json", (1, 1))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A runs directory with the runs `zoo` and `test`, which is newer, and a folder that is no run."""
    make(tmp_path, "zoo", "test")
    os.utime(tmp_path / "test" / "plan.json", (2, 2))
    (tmp_path / "none").mkdir()
    return tmp_path


def refusal(runs: Path, run_id: str | None) -> str:
    with pytest.raises(NoSuchRunError) as refused:
        find_run(runs, run_id)
    return str(refused.value)


OF_DOTS = [".", ".a", "a.", "a..b", "a./b", "a.-.", "a.b" * 22, "current", "current\n", "doctor-ps0.out"]


@pytest.mark.parametrize(
    "run_id", ["", " ", "..", "../test", "a/b", "Test", "-x", "x" * 64, "test\n", *OF_DOTS]
)
def test_a_run_id_that_breaks_the_rule_is_refused(runs: Path, run_id: str) -> None:
    there = f"The runs that exist are test, zoo (in {runs})"
    assert refusal(runs, run_id) == f"run_id is {run_id!r}; expected {RUN_ID_RULE}. {there}"


@pytest.mark.parametrize("run_id", ["lr-0.05", "0.05", "v1.2.3-a", "a.-b", "current.1", "a.output", "a" * 63])
def test_a_run_id_may_have_single_dots(runs: Path, run_id: str) -> None:
    make(runs, run_id)
    assert find_run(runs, run_id) == runs / run_id


def test_an_unknown_run_is_refused_with_a_list_of_the_newest_runs(runs: Path) -> None:
    there = "there is no run 'other'. The runs that exist are test, zoo"
    make(runs, *"abcdefgh")
    assert refusal(runs, "other") == f"{there}, h, g, f, e, d, c, b, a (in {runs})"
    make(runs, *"ij")
    assert [folder.name for folder in newest_first(runs)] == ["test", "zoo", *"jihgfedcba"]
    assert refusal(runs, "other") == f"{there}, j, i, h, g, f, e, d, c and 2 more (in {runs})"


def test_without_any_run_the_refusal_names_train_yml(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "absent"):
        said = f"There is no run in {directory} yet: ansible-playbook train.yml makes one"
        assert refusal(directory, None) == said


def test_a_run_that_is_going_on_is_refused(runs: Path) -> None:
    state = runs / "test/state.json"
    state.write_text('{"state": "running"}')
    assert refusal(runs, None) == (
        "run test is still going on, so there is nothing to judge yet: ansible-playbook train.yml "
        "-e run_id=test attaches to it and judges it at its end"
    )
    state.write_text('{"state": "ended"}')
    assert find_run(runs, None) == runs / "test"
    state.write_text('{"state": "running"}')
    (runs / "test/verdict.json").write_text("{}")
    assert find_run(runs, "test") == runs / "test"
