"""verify.yml on the sample inventory: verdict and report need no host."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.psfleet.evidence.program_folders import BYTES, ending
from tests.psfleet.evidence.run_folders import edit, find_in_the_model
from tests.psfleet.inventory.conftest import Run, run_playbook
from tests.psfleet.report.html_pages import page_of, png_size, report
from tests.repository import ROOT


@pytest.fixture
def runs(run: Path) -> Path:
    """A runs directory with a good run, and an older one that has not converged."""
    directory = run.parent
    bad = Path(shutil.copytree(run, directory / "bad"))
    edit(bad, "ps0 worker0 worker1 evaluator0", "", run_id="bad")
    find_in_the_model(bad, metrics={"weight": 0.5, "bias": 3.0})
    os.utime(bad / "plan.json", (1, 1))
    return directory


def verify(runs: Path, *options: str) -> Run:
    directory = f"training_evidence_runs_directory={runs}"
    sample = ROOT / "inventory/sample/one_ps_three_workers"
    return run_playbook("verify.yml", sample, "-e", directory, *options)


def test_the_newest_run_is_judged_and_proven_with_a_report(runs: Path) -> None:
    done = verify(runs)
    assert done.status == 0, done.output
    assert (
        "PROVEN: 2 workers trained one model together through 1 ps, and it converged (run test)"
        in done.output
    )
    assert json.loads((runs / "test/verdict.json").read_text())["verdict"] == "proven"
    assert json.loads((runs / "test/settings.json").read_text())["evidence"]["minimum_share"] == 0.2
    assert f"the report, for a browser: {runs}/test/report.html" in done.output
    page = page_of(runs / "test")
    assert "2 workers trained one model together through 1 ps, and it converged" in page.text
    assert page.tags.count("svg") == 6
    assert png_size(runs / "test/loss.png")[0] > 1000


def test_a_run_that_is_not_proven_fails_and_its_failed_checks_are_named(runs: Path) -> None:
    (runs / "bad" / "logs").mkdir(exist_ok=True)
    done = verify(runs, "-e", "run_id=bad", "--limit", "node2")
    assert done.status == 2
    assert f"What the tasks have printed is in {runs}/bad/logs" in done.output
    # The failure is not reported for the first host.
    assert "FAILED   training_evidence : Judge the run from its records\n" in done.output
    (check,) = (line for line in done.output.splitlines() if "model converged" in line)
    assert check.split(maxsplit=3)[0] == "FAILED"
    assert "weight is 0.5000, expected 2 +- 0.2; bias is 3.0000" in check
    assert "but it did not converge (run bad)" in done.output


def test_check_mode_judges_and_writes_nothing(runs: Path) -> None:
    assert verify(runs, "--check").status == 0
    for name in ("verdict.json", "report.html", "loss.png"):
        assert not (runs / "test" / name).exists()


def test_all_invalid_thresholds_are_refused_at_once(runs: Path) -> None:
    patterns = '{"training_evidence_log_patterns": [{"tasks": "worker*", "pattern": "("}]}'
    done = verify(runs, "-e", "training_evidence_minimum_share=7", "-e", patterns)
    assert done.status == 2
    assert "training_evidence_minimum_share is '7'; expected a number from 0 to 1" in done.output
    assert "training_evidence_log_patterns[0].pattern is '('; expected a regular expression (" in done.output
    assert "set it in inventory/<name>/group_vars/tf_cluster.yml or with -e" in done.output


def test_goals_of_the_inventory_are_checked(runs: Path) -> None:
    done = verify(runs, "-e", '{"training_evidence_goals": {"loss": {"maximum": 0.01}}}')
    assert done.status == 2
    assert "expected at most 0.01" in done.output


def test_a_completed_program_succeeds_and_its_open_questions_are_listed(runs: Path) -> None:
    """The folder is changed as if a program without records had left it."""
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
    assert "COMPLETED: the program ended well on 3 tasks; it is not shown that the workers" in done.output
    assert "It is not shown that the loss fell: the program recorded no losses." in done.output
    assert json.loads((run / "verdict.json").read_text())["verdict"] == "completed"


def test_a_blank_run_id_is_refused(runs: Path) -> None:
    done = verify(runs, "-e", "run_id=")
    assert done.status == 2
    assert "run_id is ''; expected lower case letters, digits, dashes and single dots" in done.output
    assert "The runs that exist are test, bad" in done.output


def test_a_report_that_cannot_be_drawn_gives_a_warning_and_the_old_report_is_removed(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPLBACKEND", "none that there is")
    for name in ("report.html", "loss.png"):
        (run / name).write_text("of an earlier verdict")
    done = verify(run.parent)
    assert done.status == 0, done.output
    assert "report.html was not drawn: ValueError" in " ".join(done.output.split())
    assert (run / "verdict.json").exists()
    assert not (run / "report.html").exists()
    assert not (run / "loss.png").exists()


@pytest.mark.parametrize("kind", ["recorded", "silent"])
def test_a_program_has_a_report(kind: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(kind)
    page = report(folder)
    assert ("loss" in page.ids) and "ended by train.yml" in page.text
    assert (folder / "loss.png").exists() == (kind == "recorded")
    assert "bias: " in page.text, "what worker0 printed"
