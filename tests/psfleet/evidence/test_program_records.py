"""Verdicts on programs from their own records: proven, contradicted or open."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.psfleet.evidence.cases import Case, Expected, cases
from tests.psfleet.evidence.folder_damages import record_a_window_without_a_step, take_no_step
from tests.psfleet.evidence.run_folders import (
    checks,
    detail,
    drop,
    edit,
    fail,
    leave_out,
    lose,
    records,
    rewrite,
    steps_and_others,
    verdict_of,
)

GOALS = {"weight": {"minimum": 1.8, "maximum": 2.2}, "bias": {"minimum": 9.8}}
WITH_RECORDS = {
    "tasks_ended_well",
    "tasks_exchanged",
    "records_complete",
    "same_plan_and_release",
    "fair_shares",
    "workers_overlap",
    "steps_interleave",
    "steps_numbered",
    "loss_finite",
    "loss_fell",
}


def test_a_program_is_proven_by_its_recorded_steps(together: Path) -> None:
    verdict = verdict_of(together, goals=GOALS)
    assert (verdict.verdict, verdict.exit_code) == ("proven", 0), verdict.failing
    assert checks(verdict, True) == WITH_RECORDS | {"goals_reached"}
    assert verdict.headline == (
        "PROVEN: by the records of the program 2 workers moved one global step together, and it learned"
    )
    assert verdict.not_shown[0] == (
        "It is not shown that all parameters were shared: its records show one global step, but not which "
        "ps each worker used."
    )
    assert verdict.figures["global_steps"] >= 400


def test_workers_that_each_trained_their_own_model_are_not_proven(alone: Path) -> None:
    verdict = verdict_of(alone)
    assert verdict.exit_code == 1
    assert "steps_interleave" in checks(verdict, False)
    assert "worker1 moved the global step alone" in detail(verdict, "steps_interleave")
    assert verdict.headline == "NOT PROVEN: nothing shows that the workers trained one model together"


def test_goals_are_compared_with_the_last_evaluation(recorded: Path) -> None:
    assert checks(verdict_of(recorded, goals={"weight": {"maximum": 1}}), False) == {"goals_reached"}
    missed = verdict_of(
        recorded, goals={"weight": {"maximum": 1}}, log_patterns=[{"tasks": "*", "pattern": "x y"}]
    )
    assert missed.headline == "NOT PROVEN: the program's records contradict it"
    assert checks(verdict_of(recorded, goals={"speed": {"minimum": 1}}), None) == {"goals_reached"}
    drop(recorded, "worker0 worker1", "evaluated")
    verdict = verdict_of(recorded, goals=GOALS)
    assert (verdict.exit_code, checks(verdict, None)) == (2, {"goals_reached"})


def test_an_evaluation_of_an_earlier_step_does_not_count(recorded: Path) -> None:
    every = records(recorded, "worker1")
    (evaluated,), _ = steps_and_others(recorded, "worker1", "evaluated")
    early = evaluated | {"global_step": 1, "metrics": {"weight": 0.0, "bias": 0.0}}
    rewrite(recorded, "worker1", [every[0], early, *every[1:]])
    assert "goals_reached" in checks(verdict_of(recorded, goals=GOALS), True)


def test_the_last_step_is_the_highest_that_any_worker_recorded(recorded: Path) -> None:
    edit(recorded, "worker0", "finished", global_step=10)
    verdict = verdict_of(recorded)
    assert verdict.verdict == "proven", verdict.failing
    assert verdict.figures["global_steps"] >= 400


def let_the_ps_train(run: Path) -> None:
    """Let ps 0 have made all steps, and the workers none."""
    steps, _ = steps_and_others(run, "worker0", "step")
    take_no_step(run, "worker0 worker1")
    rewrite(run, "ps0", [record | {"job": "ps"} for record in steps])


tell_no_losses = partial(leave_out, fields="loss loss_mean")


@pytest.mark.parametrize(
    ("damage", "missing", "said"),
    [
        (partial(lose, task="worker1"), {"steps_interleave"}, "worker1 left no records of steps"),
        (partial(take_no_step, tasks="worker1"), {"steps_interleave"}, "worker1 left no records of steps"),
        (
            partial(take_no_step, tasks="worker0 worker1"),
            {"steps_interleave", "loss_fell"},
            "the program leaves no records of its steps",
        ),
        (let_the_ps_train, {"loss_fell"}, "together: no worker is seen to train; ps0 made "),
        (let_the_ps_train, {"loss_fell"}, "the loss fell: its workers recorded no losses"),
        (partial(tell_no_losses, tasks="worker0 worker1"), {"loss_fell"}, "the program recorded no losses"),
        (
            partial(edit, tasks="worker0 worker1", event="step", loss=3.0, loss_mean=3.0),
            {"loss_fell"},
            "the loss fell: the loss went from 3 to 3, so it did not fall beyond its noise",
        ),
        (
            partial(edit, tasks="worker0 worker1", event="started", settings={"replication": "sync"}),
            {"steps_interleave"},
            "together: it trained synchronously, and workers that train alone would leave the same records.",
        ),
    ],
)
def test_missing_records_are_named_and_no_check_passes_without_them(
    recorded: Path, damage: Callable[[Path], None], missing: set[str], said: str
) -> None:
    damage(recorded)
    found = verdict_of(recorded)
    assert found.verdict == "completed", found.failing
    assert not missing & checks(found, True, False, None)
    assert said in "\n".join(found.not_shown)


def test_a_program_that_resumes_a_trained_model_is_proven_by_a_goal(recorded: Path) -> None:
    rest(recorded, after=0, at=1e-12)
    assert verdict_of(recorded).verdict == "completed"
    verdict = verdict_of(recorded, goals=GOALS)
    assert verdict.verdict == "proven", verdict.failing
    assert any("It is not shown that the loss fell: " in said for said in verdict.not_shown)
    assert checks(verdict_of(recorded, minimum_loss_reduction=0.2), False) == {"loss_fell"}


def diverge(run: Path) -> None:
    every = records(run, "worker1")
    steps = [number for number, record in enumerate(every) if record["event"] == "step"]
    rewrite(run, "worker1", [*every[: steps[9]], every[steps[9]] | {"loss": None}, *every[steps[9] + 1 :]])


def shape(run: Path, first: float, last: float) -> None:
    """Let the loss go from the first to the last, in equal steps."""
    for worker in ("worker0", "worker1"):
        changed = records(run, worker)
        steps = [record for record in changed if record["event"] == "step"]
        for number, record in enumerate(steps):
            record["loss"] = record["loss_mean"] = first + (last - first) * number / len(steps)
        rewrite(run, worker, changed)


def rest(run: Path, after: int, at: float) -> None:
    """Let the loss fall for so many windows of each worker, and then rest."""
    for worker in ("worker0", "worker1"):
        changed = records(run, worker)
        steps = [record for record in changed if record["event"] == "step"]
        for number, record in enumerate(steps):
            record["loss"] = record["loss_mean"] = 10.0 - number if number < after else at
        rewrite(run, worker, changed)


# What the records of a program's own contradict.
CASES = {
    "a failure in the records": Case(
        partial(fail, task="worker1", reason="no more data"),
        Expected(1, "tasks_ended_well", "worker1 recorded that it failed: no more data"),
    ),
    "another program": Case(
        partial(edit, tasks="worker1", event="", program="decaf"),
        Expected(1, "same_plan_and_release", "worker1 ran program decaf"),
    ),
    "a window without a step": Case(
        record_a_window_without_a_step, Expected(1, "records_complete", "comes after local step")
    ),
    "the name of our model, whose loss says nothing of a program's own": Case(
        (
            partial(edit, tasks="worker0 worker1", event="started", settings={"model": "linear"}),
            partial(edit, tasks="worker0 worker1", event="step", loss=0.15, loss_mean=0.15),
        ),
        Expected(
            0, headline="COMPLETED: the program ended well on 3 tasks; it is not shown that the loss fell"
        ),
    ),
    "a loss that diverges": Case(diverge, Expected(1, "loss_finite", "worker1: the loss was not finite")),
    "a loss that diverges at once": Case(
        partial(edit, tasks="worker0 worker1", event="step", loss=None, loss_mean=None),
        Expected(1, "loss_finite", "worker0: the loss was not finite"),
    ),
    "a negative loss that rises": Case(
        partial(shape, first=-50, last=-1), Expected(1, "loss_fell", "the loss rose from -4")
    ),
    "a negative loss that falls": Case(partial(shape, first=-1, last=-50), Expected(0)),
    "a loss that has come to rest long before the first tenth is over": Case(
        partial(rest, after=5, at=1e-12), Expected(0, said=" to 1e-12")
    ),
}


@cases(CASES)
def test_each_contradiction_of_a_programs_records_is_found(recorded: Path, case: Case) -> None:
    case.hold(recorded)


def test_a_program_may_record_losses_of_one_worker_only(recorded: Path) -> None:
    tell_no_losses(recorded, tasks="worker1")
    verdict = verdict_of(recorded)
    assert verdict.verdict == "proven", verdict.failing
    windows, _ = steps_and_others(recorded, "worker0")
    assert detail(verdict, "loss_finite") == f"finite in all {len(windows)} windows of steps"


def test_a_restarted_program_counts_its_steps_from_zero_also_without_a_started_record(
    recorded: Path,
) -> None:
    steps, (begun, *_) = steps_and_others(recorded, "worker1")
    half = len(steps) // 2
    again = [record | {"pid": 99999} for record in steps[half:]]
    done = 0
    for record in again:
        done += record["steps"]
        record["local_step"] = done
    rewrite(recorded, "worker1", [begun, *steps[:half], *again])
    assert "records_complete" in checks(verdict_of(recorded), True)
