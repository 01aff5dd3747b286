"""Runs that end well without some of their workers, by `training_run_success`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from psfleet.evidence.reading import read_run
from psfleet.evidence.verdict_lines import as_lines
from tests.psfleet.evidence.program_folders import ending, endings
from tests.psfleet.evidence.replications import count, counted
from tests.psfleet.evidence.run_folders import (
    ask_for,
    checks,
    detail,
    edit,
    events,
    lose_host,
    records,
    rewrite,
    verdict_of,
    write,
)


@pytest.fixture
def lost(copy_of: Callable[[str], Path]) -> Path:
    """Three workers; the third was killed after a hundred steps, and its host is gone."""
    run = copy_of("lost_for_good")
    lose_host(run, "worker2", success="chief")
    return run


def test_a_run_without_a_lost_worker_is_proven_and_names_the_worker_and_the_step_of_its_loss(
    lost: Path, trained: Callable[[str], Path]
) -> None:
    verdict = verdict_of(lost)
    assert verdict.verdict == "proven", verdict.failing
    (gone,) = verdict.figures["lost"]
    last = records(trained("lost_for_good"), "worker2")[-1]["global_step_after"]
    assert 0 < gone["global_step"] <= last + 100  # it may have taken steps that it did not record
    assert (gone["task"], gone["host"], gone["steps"]) == ("worker2", "host3", 100)
    assert verdict.headline == (
        "PROVEN: 2 workers trained one model together through 1 ps, and it converged; "
        f"worker2 was lost with host3 after global step {gone['global_step']}"
    )
    lines = [line.strip() for line, _ in as_lines(verdict, lost)]
    (line,) = (line for line in lines if line.startswith("lost "))
    assert line.endswith("s after the start; 100 steps of it are in the model")
    assert verdict.figures["workers"]["worker2"]["steps"] == 100


@pytest.mark.parametrize(
    ("success", "proven"), [("chief", True), (1, True), (2, True), (3, False), ("all_workers", False)]
)
def test_the_policy_decides_how_many_workers_must_have_finished(
    lost: Path, success: str | int, proven: bool
) -> None:
    ask_for(lost, success=success)
    verdict = verdict_of(lost)
    assert (verdict.exit_code == 0) is proven
    if not proven:
        assert verdict.headline.endswith(": worker2 was lost with host3")


def test_the_records_of_a_lost_worker_are_judged(lost: Path, trained: Callable[[str], Path]) -> None:
    rewrite(lost, "worker2", records(trained("lost_for_good"), "worker2"))
    verdict = verdict_of(lost)
    assert verdict.verdict == "proven", verdict.failing
    steps = sum(record.get("steps", 0) for record in records(lost, "worker2"))
    assert 0 < steps <= verdict.figures["lost"][0]["steps"]

    edit(lost, "worker2", "peers_ready", ps_nonces={"ps0": 7})
    assert detail(verdict_of(lost), "same_parameter_servers") == "worker2 met another ps0 than the chief"


def test_no_worker_counts_as_lost_without_a_valid_tasks_json(lost: Path) -> None:
    (lost / "tasks.json").unlink()
    assert verdict_of(lost).exit_code == 2
    for text in ("[3]", "[]"):
        write(lost, "tasks.json", text)
        assert read_run(lost).lost == ()


def test_a_worker_that_ended_by_itself_does_not_count_as_lost_if_its_file_is_cut(
    lost: Path, trained: Callable[[str], Path]
) -> None:
    write(lost, "tasks.json", json.dumps([*endings(lost), ending("worker2", 0, ended_by="itself")]))
    rewrite(lost, "worker2", records(trained("lost_for_good"), "worker2"))
    verdict = verdict_of(lost)
    assert verdict.verdict == "cannot tell"
    assert "worker2 has no ending" in detail(verdict, "ended_well")


def test_a_lost_chief_is_not_excused(lost: Path) -> None:
    lose_host(lost, "worker0", success="chief")
    assert verdict_of(lost).exit_code
    assert "worker0" not in {task.name for task in read_run(lost).lost}


def test_a_task_that_systemd_gave_up_is_named_with_its_exit_code(lost: Path) -> None:
    write(lost, "tasks.json", json.dumps([*endings(lost), ending("worker2", 9, ended_by="itself")]))
    assert "; worker2 failed with exit code 9 on host3 after" in verdict_of(lost).headline


def test_a_needed_task_that_systemd_gave_up_is_the_reason_in_the_headline(lost: Path) -> None:
    reason = "a signal ended it\nStep: 100, global step: 300"
    write(lost, "tasks.json", json.dumps([*endings(lost), ending("worker2", 9, reason=reason)]))
    ask_for(lost, success="all_workers")
    verdict = verdict_of(lost)
    assert verdict.headline == "NOT PROVEN: worker2 failed with exit code 9 on host3"
    assert "worker2 failed with exit code 9: a signal ended it" in detail(verdict, "ended_well").split("; ")


def test_steps_of_an_unknown_process_do_not_count_as_those_of_a_lost_worker(lost: Path) -> None:
    """The ps counted how many steps the worker took; any more must be those of another process."""
    count(lost, worker2=60)
    assert checks(verdict_of(lost), False) == {"contributions_add_up", "steps_accounted"}


def test_two_remaining_workers_must_be_shown_to_share_with_each_other(lost: Path) -> None:
    """If all foreign steps that a worker saw may be the lost worker's, sharing is not shown."""
    count(lost, worker2=counted(lost)["worker2"] + 800)
    assert "steps_interleave" in checks(verdict_of(lost), None)


def test_settings_with_an_unknown_policy_leave_the_verdict_open(lost: Path) -> None:
    ask_for(lost, success="most")
    verdict = verdict_of(lost)
    assert verdict.exit_code == 2
    assert "success is 'most'; expected all_workers, chief, or the number" in verdict.checks[0].detail


def test_the_step_of_a_loss_is_unknown_if_the_model_was_restored(lost: Path) -> None:
    every = records(lost, "worker0")
    begun = next(number for number, record in enumerate(every) if record["event"] == "initialised")
    restored = every[begun] | {"event": "restored", "checkpoint": "x", "monotonic": 1e6}
    rewrite(lost, "worker0", [*every[:-1], restored, every[-1]])
    assert verdict_of(lost).figures["lost"][0]["global_step"] is None
    assert events(lost, "worker0").exists()
