"""verify.yml on the sample inventory, whose hosts do not exist: a verdict needs none of them."""

import json
import os
import shutil
from pathlib import Path

import pytest

from psfleet.evidence.runs_directory import NoSuchRun, find_run
from tests.psfleet.evidence.program_folders import BYTES, ending
from tests.psfleet.evidence.run_folders import edit, find_in_the_model
from tests.psfleet.inventory.conftest import Run, run_playbook
from tests.repository import ROOT


@pytest.fixture
def runs(run: Path) -> Path:
    """A runs directory with a good run, and an older one that has not converged."""
    directory = run.parent
    bad = Path(shutil.copytree(run, directory / "bad"))
    for task in ("ps0", "worker0", "worker1", "evaluator0"):
        edit(bad, task, "", run_id="bad")
    find_in_the_model(bad, metrics={"weight": 0.5, "bias": 3.0})
    os.utime(bad / "plan.json", (1, 1))
    return directory


def verify(runs: Path, *options: str) -> Run:
    directory = f"training_evidence_runs_directory={runs}"
    sample = ROOT / "inventory/sample/one_ps_three_workers"
    return run_playbook("verify.yml", sample, "-e", directory, *options)


def test_the_newest_run_is_judged_and_proven(runs: Path) -> None:
    done = verify(runs)
    assert done.status == 0, done.output
    assert (
        "PROVEN: 2 workers trained one model together through 1 ps, and it converged (run test)"
        in done.output
    )
    assert json.loads((runs / "test/verdict.json").read_text())["verdict"] == "proven"
    assert json.loads((runs / "test/settings.json").read_text())["evidence"]["minimum_share"] == 0.2


def test_a_run_that_is_not_proven_fails_with_its_checks_named(runs: Path) -> None:
    done = verify(runs, "-e", "run_id=bad", "--limit", "node2")
    assert done.status == 2
    (check,) = (line for line in done.output.splitlines() if "model converged" in line)
    assert check.split(maxsplit=3)[0] == "FAILED"
    assert "weight is 0.5000, expected 2 +- 0.2; bias is 3.0000" in check
    assert "but it did not converge (run bad)" in done.output


def test_check_mode_judges_and_writes_nothing(runs: Path) -> None:
    assert verify(runs, "--check").status == 0
    assert not (runs / "test/verdict.json").exists()


def test_a_threshold_out_of_its_range_is_refused(runs: Path) -> None:
    done = verify(runs, "-e", "training_evidence_minimum_share=7")
    assert done.status == 2
    assert "training_evidence_minimum_share is '7'; expected a number from 0 to 1" in done.output


def test_a_pattern_that_is_none_is_refused_by_its_entry(runs: Path) -> None:
    done = verify(runs, "-e", '{"training_evidence_log_patterns": [{"tasks": "worker*", "pattern": "("}]}')
    assert done.status == 2
    assert "training_evidence_log_patterns[0].pattern is '('; expected a regular expression (" in done.output
    assert "set it in inventory/<name>/group_vars/tf_cluster.yml or with -e" in done.output


def test_goals_reach_the_verdict(runs: Path) -> None:
    done = verify(runs, "-e", '{"training_evidence_goals": {"loss": {"maximum": 0.01}}}')
    assert done.status == 2
    assert "expected at most 0.01" in done.output


def test_a_program_that_completed_ends_well_and_shows_what_is_not_shown(runs: Path) -> None:
    """The same folder, as if a program without records had left it."""
    run = runs / "test"
    shutil.rmtree(run / "events")
    (run / "logs").mkdir()
    tasks = ("ps0", "worker0", "worker1")
    for task in tasks:
        (run / "logs" / f"{task}.out").write_text("done\n")
    (run / "settings.json").write_text(json.dumps({"training": {}, "program": {"release": "c0ffee"}}))
    (run / "tasks.json").write_text(json.dumps([ending(task, 0, **BYTES) for task in tasks]))
    done = verify(runs)
    assert done.status == 0, done.output
    assert "COMPLETED: the program ended well on 3 tasks; not shown is that the workers" in done.output
    assert "Not shown is that the loss fell: the program recorded no losses." in done.output
    assert json.loads((run / "verdict.json").read_text())["verdict"] == "completed"
    assert (
        verify(runs, "-e", '{"training_evidence_log_patterns": [{"tasks": "*", "pattern": "bye"}]}').status
        == 2
    )


def test_a_blank_run_id_is_not_taken_for_the_newest_run(runs: Path) -> None:
    done = verify(runs, "-e", "run_id=")
    assert done.status == 2
    assert "run_id is ''; expected lower case letters, digits and dashes" in done.output
    assert "The runs that exist are test, bad" in done.output


@pytest.mark.parametrize("run_id", ["", " ", "..", "../test", "a/b", "Test", "-x", "x" * 64, "test\n"])
def test_a_run_id_that_breaks_the_rule_is_refused(runs: Path, run_id: str) -> None:
    with pytest.raises(NoSuchRun, match="expected lower case letters") as refusal:
        find_run(runs, run_id)
    assert "The runs that exist are test, bad" in str(refusal.value)


def test_a_run_that_does_not_exist_is_refused_with_those_that_do(runs: Path) -> None:
    with pytest.raises(NoSuchRun, match=r"there is no run 'other'\. The runs that exist are test, bad"):
        find_run(runs, "other")


def test_without_any_run_train_is_named(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "absent"):
        with pytest.raises(
            NoSuchRun, match=r"There is no run in .* yet: ansible-playbook train.yml makes one"
        ):
            find_run(directory, None)


def test_a_run_that_is_going_on_is_refused(runs: Path) -> None:
    state = runs / "test/state.json"
    state.write_text('{"state": "running"}')
    with pytest.raises(NoSuchRun, match=r"run test is still going on.*train.yml -e run_id=test attaches"):
        find_run(runs, None)
    state.write_text('{"state": "ended"}')
    assert find_run(runs, None) == runs / "test"
    state.write_text('{"state": "running"}')
    (runs / "test/verdict.json").write_text("{}")
    assert find_run(runs, "test") == runs / "test"
