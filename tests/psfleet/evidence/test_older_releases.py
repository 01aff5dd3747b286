"""Runs of older releases are judged by what their release could record.

older/ has real runs of the release of 2026-11-24 (40f55a2d): two workers, one ps.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from psfleet.evidence.__main__ import main
from psfleet.evidence.packed_run import unpacked_run
from tests.psfleet.evidence.run_folders import checks, drop, edit, leave_out, lose, verdict_of
from trainer.contract.record_fields import EVENTS, WRITES

OLDER = Path(__file__).with_name("older")


@pytest.fixture
def model() -> Iterator[Path]:
    """A run of the model `linear`."""
    with unpacked_run(OLDER / "model_20261124.tar.gz") as run:
        yield run


@pytest.fixture
def program() -> Iterator[Path]:
    """A run of a program of TensorFlow 1."""
    with unpacked_run(OLDER / "program_20261124.tar.gz") as run:
        yield run


def test_a_model_s_run_is_judged_by_the_checks_of_its_release(model: Path) -> None:
    verdict = verdict_of(model)
    assert verdict.verdict == "proven", verdict.failing
    assert verdict.headline.endswith("; judged by the checks of release release-1, which recorded it")
    assert "gradients_fit_loss" not in checks(verdict, True, False, None)
    why = "release release-1, which recorded this run, did not record it yet."
    assert verdict.not_shown[:2] == (
        f"It is not shown that each worker pushed the gradients of its loss: {why}",
        f"It is not shown that each worker uses the parameters that the evaluator found: {why}",
    )


def test_a_program_s_run_is_judged_by_the_checks_of_its_release(program: Path) -> None:
    verdict = verdict_of(program)
    assert verdict.verdict == "proven", verdict.failing
    assert verdict.headline.endswith("; judged by the checks of release beef, which recorded it")
    assert "parameters_shared" not in checks(verdict, True, False, None)
    assert "that all parameters were shared: release beef, which recorded" in verdict.not_shown[0]


def test_what_its_release_recorded_is_asked_as_of_any_run(model: Path) -> None:
    edit(model, "worker1", "peers_ready", ps_nonces={"ps0": 5})
    assert checks(verdict_of(model), False) == {"same_parameter_servers"}
    drop(model, "worker0", "checkpointed")
    assert "evaluated_apart" in checks(verdict_of(model), None)


def test_what_one_task_could_record_is_asked_of_all(run: Path) -> None:
    """All tasks of a run have one release."""
    drop(run, "worker0 worker1", "gradients")
    assert checks(verdict_of(run), None) == {"gradients_fit_loss"}
    leave_out(run, "ps0 worker0", "writes")
    assert checks(verdict_of(run), None) == {"gradients_fit_loss"}
    leave_out(run, "worker1 evaluator0", "writes")
    verdict = verdict_of(run)
    assert verdict.verdict == "proven", verdict.failing
    assert "; judged by the checks of release " in verdict.headline


def test_a_release_that_lists_nothing_could_record_what_a_task_did(run: Path) -> None:
    leave_out(run, "ps0 worker0 worker1 evaluator0", "writes")
    drop(run, "worker1", "gradients")
    assert checks(verdict_of(run), None) == {"gradients_fit_loss"}


def test_files_without_records_are_no_matter_of_the_release(model: Path) -> None:
    for task in ("ps0", "worker0", "worker1", "evaluator0"):
        lose(model, task)
    assert "gradients_fit_loss" in checks(verdict_of(model), None)


def test_each_start_lists_what_the_release_can_record(run: Path) -> None:
    assert {*EVENTS, "finished.fingerprint", "step.trained"} <= {*WRITES.split()}
    assert "finished.reason" not in WRITES
    for file in (run / "events").iterdir():
        assert f'"writes":"{WRITES}"' in file.read_text().splitlines()[0]


def test_a_packed_older_run_is_judged_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(OLDER / "model_20261124.tar.gz")]) == 0
    assert "release release-1, which recorded it" in capsys.readouterr().out
