"""Runs that workers left and joined while they went on, as `training_run_success` allows."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from psfleet.evidence.absences import absences
from psfleet.evidence.reading import read_run
from psfleet.evidence.verdict_lines import as_lines
from tests.psfleet.evidence.adversaries.real_runs import RealRuns
from tests.psfleet.evidence.folder_damages import take_no_step
from tests.psfleet.evidence.program_folders import endings
from tests.psfleet.evidence.replications import count, counted
from tests.psfleet.evidence.run_folders import (
    UNSHARED,
    checks,
    detail,
    edit,
    lose_host,
    records,
    rewrite,
    verdict_of,
    write,
)
from trainer.contract.exit_codes import STOPPED


def ended_well(run: Path, success: str | int, *left: str) -> None:
    """Let all tasks with records have ended by themselves; those that `left` were ended by SIGTERM."""
    lose_host(run, success=success)
    recorded = {path.stem for path in (run / "events").iterdir()}
    entries = [each for each in endings(run) if each["name"] in recorded]
    codes = dict.fromkeys(left, STOPPED)
    told = [each | {"exit_code": codes.get(each["name"], each["exit_code"])} for each in entries]
    write(run, "tasks.json", json.dumps(told))


@pytest.fixture
def elastic(copy_of: Callable[[str], Path]) -> Path:
    """Worker 1 left after 100 steps and was back at about step 730 of 900; worker 2 came at about 700."""
    run = copy_of("left_and_joined")
    ended_well(run, "chief")
    return run


@pytest.fixture
def left(copy_of: Callable[[str], Path]) -> Path:
    """Worker 1 left after 100 steps, and worker 2 was never there."""
    run = copy_of("left_for_good")
    ended_well(run, "chief", "worker1")
    return run


def test_a_run_that_workers_left_and_joined_is_proven_and_names_them(elastic: Path) -> None:
    verdict = verdict_of(elastic)
    assert verdict.verdict == "proven", verdict.failing
    away = absences(read_run(elastic))
    ((gone, back),), ((begin, joined),) = away["worker1"], away["worker2"]
    assert 100 <= gone < back <= 731
    assert (begin, joined) == (0, 701)
    assert verdict.headline == (
        "PROVEN: 3 workers trained one model together through 1 ps, and it converged; "
        f"worker1 left after global step {gone} and joined again after {back}; "
        f"worker2 joined after global step {joined}"
    )
    assert "resumed" not in detail(verdict, "ended_well")


@pytest.mark.parametrize("success", ["all_workers", 2, 3])
def test_a_late_worker_owes_its_share_of_the_whole_run_if_the_run_needs_it(
    elastic: Path, success: str | int
) -> None:
    ended_well(elastic, success)
    verdict = verdict_of(elastic)
    assert "workers_overlap" in checks(verdict, False)
    assert "joined after" not in verdict.headline


def test_a_late_worker_that_did_almost_nothing_while_it_was_there_is_found(elastic: Path) -> None:
    """It is told to have joined soon, and took its steps at the end alone."""
    edit(elastic, "worker2", "peers_ready", global_step=20)
    verdict = verdict_of(elastic)
    assert "worker2 was training during" in detail(verdict, "workers_overlap")
    assert verdict.exit_code == 1


def test_a_worker_that_slept_was_there(elastic: Path) -> None:
    """Its process of before is told to have been killed: that is no leave."""
    every = records(elastic, "worker1")
    ended = next(number for number, record in enumerate(every) if record["event"] == "finished")
    rewrite(elastic, "worker1", [*every[:ended], *every[ended + 1 :]])
    assert "worker1" not in absences(read_run(elastic))


def test_a_run_that_was_stopped_as_a_whole_was_not_left(elastic: Path) -> None:
    """The chief is told to have been stopped meanwhile, and to have come back."""
    every = records(elastic, "worker0")
    steps = [number for number, record in enumerate(every) if record["event"] == "step"]
    middle = steps[len(steps) // 2]
    stopped = every[-1] | {"event": "finished", "reason": "stopped", "monotonic": every[middle]["monotonic"]}
    again = [record | {"pid": 1, "nonce": 7} for record in every[:1]]
    met = next(record for record in every if record["event"] == "peers_ready")
    rest = [record | {"pid": 1} for record in every[middle + 1 :]]
    rewrite(elastic, "worker0", [*every[: middle + 1], stopped, *again, met | {"pid": 1}, *rest])
    of_worker1 = [
        record | {"worker_nonces": record["worker_nonces"] | {"worker0": 7}}
        if record["event"] == "peers_ready" and "worker2" in record["worker_nonces"]
        else record
        for record in records(elastic, "worker1")
    ]
    rewrite(elastic, "worker1", of_worker1)
    assert "worker1" not in absences(read_run(elastic))


def test_a_late_worker_with_its_own_ps_is_found(copy_of: Callable[[str], Path]) -> None:
    run = copy_of("third_worker_on_its_own_ps")
    ended_well(run, 2)
    edit(run, "worker2", "peers_ready", global_step=250)
    verdict = verdict_of(run)
    assert verdict.verdict == "not proven"
    assert checks(verdict, False) >= UNSHARED - {"fair_shares"}


def test_steps_of_a_late_worker_that_nobody_counted_are_found(elastic: Path) -> None:
    count(elastic, worker2=counted(elastic)["worker2"] - 20)
    assert checks(verdict_of(elastic), False) == {"contributions_add_up"}


def test_a_worker_that_left_and_one_that_was_not_there_are_excused_and_named(left: Path) -> None:
    verdict = verdict_of(left)
    assert verdict.verdict == "proven", verdict.failing
    gone, never = verdict.figures["lost"]
    # It may take some more steps before it sees that it is to leave.
    steps = records(left, "worker0")[-1]["contributions"]["worker1"]
    assert steps >= 100
    assert (gone["task"], gone["how"], gone["steps"]) == ("worker1", "left", steps)
    assert (never["task"], never["how"], never["steps"]) == ("worker2", "was not there", 0)
    assert verdict.headline == (
        "PROVEN: 1 worker trained one model through 1 ps, and it converged; "
        f"worker1 left after global step {gone['global_step']}; worker2 was not there"
    )
    named = [line.split() for line, _ in as_lines(verdict, left)]
    assert [words[2] for words in named if words[:2] == ["not", "there"]] == ["worker1", "worker2"]


@pytest.mark.parametrize("success", ["all_workers", 2])
def test_a_run_that_needs_more_workers_is_not_proven_without_them(left: Path, success: str | int) -> None:
    ended_well(left, success, "worker1")
    assert verdict_of(left).exit_code != 0


def test_what_a_worker_recorded_before_it_left_is_judged(left: Path) -> None:
    edit(left, "worker1", "peers_ready", ps_nonces={"ps0": 7})
    assert detail(verdict_of(left), "same_parameter_servers") == "worker1 met another ps0 than the chief"


def test_a_worker_that_came_too_late_for_a_step_is_named(elastic: Path) -> None:
    steps = counted(elastic)
    count(elastic, worker2=0, worker0=steps["worker0"] + steps["worker2"])
    take_no_step(elastic, "worker2")
    run = read_run(elastic)
    assert [task.name for task in run.lost] == ["worker2"]
    assert "worker2 joined too late to take a step" in detail(verdict_of(elastic), "ended_well")


def test_nobody_waits_for_a_worker_that_left_or_is_not_there(real_runs: RealRuns) -> None:
    for name in ("left_and_joined", "left_for_good"):
        tasks = real_runs.tasks_of(name)
        waited = [record.number("waited_seconds") for record in tasks.records("worker0", "peers_ready")]
        assert len(waited) == 1
        assert "Ending without waiting longer" not in tasks.output("worker0")
        assert "Waiting for worker2" not in tasks.output("worker0")
        assert tasks.records("worker1", "finished")[0].text("reason") == "stopped"
