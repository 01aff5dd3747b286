"""Records of a healthy run with impossible or foreign claims: each contradiction is found."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.psfleet.evidence.cases import Case, cases
from tests.psfleet.evidence.program_folders import ending
from tests.psfleet.evidence.replications import count, counted
from tests.psfleet.evidence.run_folders import (
    checks,
    detail,
    edit,
    events,
    records,
    rewrite,
    steps_and_others,
    verdict_of,
    write,
)


def take_the_file_of_another_run(run: Path) -> None:
    edit(run, "worker1", "", run_id="another")


def take_the_chief_for_worker1(run: Path) -> None:
    shutil.copy(events(run, "worker0"), events(run, "worker1"))


def count_a_step_too_many(run: Path) -> None:
    count(run, worker1=counted(run)["worker1"] + 1)


def count_for_the_other(run: Path) -> None:
    steps = counted(run)
    count(run, worker0=steps["worker0"] - 9, worker1=steps["worker1"] + 9)


def initialise_again(run: Path) -> None:
    every = records(run, "worker0")
    begun = next(record for record in every if record["event"] == "initialised")
    again = begun | {"monotonic": every[40]["monotonic"]}
    rewrite(run, "worker0", [*every[:40], again, *every[40:]])


def leave_out_a_local_step(run: Path) -> None:
    every = records(run, "worker1")
    next(record for record in every if record["event"] == "step" and record["steps"] > 1)["steps"] -= 1
    rewrite(run, "worker1", every)


def fall_back_without_a_checkpoint(run: Path) -> None:
    changed = records(run, "worker1")
    for record in changed[40:]:
        if record["event"] == "step":
            record["global_step_before"] -= 50
            record["global_step_after"] -= 50
    rewrite(run, "worker1", changed)


def test_the_clock_of_the_chiefs_host_changes_no_answer_and_no_figure(run: Path) -> None:
    """The clock differs by ten minutes from the others', and the monotonic clock has another origin."""
    before = verdict_of(run)
    for task in ("ps0", "worker0", "evaluator0"):
        shifted = [
            record | {"wall": record["wall"] - 600, "monotonic": record["monotonic"] + 1e6}
            for record in records(run, task)
        ]
        rewrite(run, task, shifted)
    assert verdict_of(run).as_json() == before.as_json()


def alternate(run: Path, loss: float) -> None:
    """Let losses alternate in sign, so that their medians are arbitrary."""
    for task in ("worker0", "worker1"):
        changed = records(run, task)
        steps = [record for record in changed if record["event"] == "step"]
        for number, record in enumerate(steps):
            record["loss"] = record["loss_mean"] = -loss if number % 2 else loss
        rewrite(run, task, changed)


@cases("forged_records", globals())
def test_each_contradiction_gets_its_expected_verdict_and_message(run: Path, case: Case) -> None:
    case.hold(run)


@pytest.mark.parametrize("damage", [take_the_file_of_another_run, take_the_chief_for_worker1])
def test_a_file_of_another_task_or_run_is_named(run: Path, damage: Callable[[Path], None]) -> None:
    damage(run)
    verdict = verdict_of(run)
    assert verdict.exit_code == 1
    assert "worker1: its file has " in detail(verdict, "records_complete")
    assert "workers_overlap" in checks(verdict, None)


def test_a_worker_that_joins_at_the_very_end_has_no_share(run: Path) -> None:
    """Everything that worker 1 does happens in the last steps; all the rest is consistent."""
    (*_, last, last_of_all), (*start, end) = steps_and_others(run, "worker1")
    done = last["steps"] + last_of_all["steps"]
    steps = [last | {"local_step": last["steps"]}, last_of_all | {"local_step": done}]
    rewrite(run, "worker1", [*start, *steps, end | {"local_step": done}])
    count(run, worker0=records(run, "worker0")[-1]["global_step"] - done, worker1=done)

    verdict = verdict_of(run)
    assert verdict.exit_code == 1
    assert {"fair_shares", "workers_overlap"} <= checks(verdict, False)
    assert "worker1 applied " in detail(verdict, "fair_shares")
    assert "expected at least 50.0%" in detail(verdict, "workers_overlap")


def test_a_lost_worker_is_reported_as_lost_and_not_as_one_that_shared_nothing(
    copy_of: Callable[[str], Path],
) -> None:
    run, shares = copy_of("slow"), {"minimum_share": 0.9}
    assert "nothing shows that 2 workers trained" in verdict_of(run, **shares).headline
    edit(run, "worker1", "finished", reason="stopped")
    verdict = verdict_of(run, **shares)
    assert checks(verdict, False) == {"fair_shares", "ended_well"}
    assert verdict.headline == "NOT PROVEN: not every worker took part to the end"
    write(run, "tasks.json", json.dumps([ending("worker1", 143, ended_by="psfleet")]))
    assert detail(verdict_of(run), "ended_well").endswith(": stopped by a playbook")
    lost = ending("worker1", 143, ended_by="host", failed=True, reason="its host went down")
    write(run, "tasks.json", json.dumps([lost]))
    assert detail(verdict_of(run), "ended_well").endswith("worker1 was lost: its host went down")
