"""Records of a healthy run that claim what cannot be, or come from elsewhere: each contradiction is found."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.psfleet.evidence.cases import Expected
from tests.psfleet.evidence.damages import record_a_window_without_a_step
from tests.psfleet.evidence.run_folders import (
    checks,
    detail,
    edit,
    events,
    meet_again,
    records,
    rewrite,
    verdict_of,
)


def take_the_chief_for_worker1(run: Path) -> None:
    shutil.copy(events(run, "worker0"), events(run, "worker1"))


def start_by_hand(run: Path) -> None:
    for task in ("ps0", "worker0", "worker1", "evaluator0"):
        edit(run, task, "", plan_hash="", release="")


def fail_at_the_end(run: Path) -> None:
    every = records(run, "worker1")
    rewrite(
        run, "worker1", [*every[:-1], every[-1] | {"event": "failed", "class": "program", "reason": "bug"}]
    )


def count_a_step_too_many(run: Path) -> None:
    finished = records(run, "worker0")[-1]
    counted = finished["contributions"]
    edit(run, "worker0", "finished", contributions=counted | {"worker1": counted["worker1"] + 1})


def count_for_the_other(run: Path) -> None:
    counted = records(run, "worker0")[-1]["contributions"]
    moved = {"worker0": counted["worker0"] - 9, "worker1": counted["worker1"] + 9}
    edit(run, "worker0", "finished", contributions=moved)


def fail_with_steps_unrecorded(run: Path) -> None:
    count_for_the_other(run)
    fail_at_the_end(run)


def initialise_again(run: Path) -> None:
    every = records(run, "worker0")
    begun = next(record for record in every if record["event"] == "initialised")
    again = begun | {"monotonic": every[40]["monotonic"]}
    rewrite(run, "worker0", [*every[:40], again, *every[40:]])


def leave_out_a_local_step(run: Path) -> None:
    every = records(run, "worker1")
    first = next(record for record in every if record["event"] == "step")
    first["steps"] -= 1
    rewrite(run, "worker1", every)


def fall_back_without_a_checkpoint(run: Path) -> None:
    changed = records(run, "worker1")
    for record in changed[40:]:
        if record["event"] == "step":
            record["global_step_before"] -= 50
            record["global_step_after"] -= 50
    rewrite(run, "worker1", changed)


take_the_file_of_another_run = partial(edit, task="worker1", event="", run_id="another")
run_another_plan = partial(edit, task="worker1", event="", plan_hash="0123456789ab")
run_another_release = partial(edit, task="worker1", event="", release="release-2")
stop_the_run = partial(edit, task="worker1", event="finished", reason="stopped")
end_before_the_last_step = partial(edit, task="worker0", event="finished", last_step=500)
meet_another_worker = partial(edit, task="worker1", event="started", nonce=12345)
meet_another_worker_later = partial(meet_again, task="worker0", worker_nonces={"worker1": 12345})
meet_another_ps_later = partial(meet_again, task="worker1", ps_nonces={"ps0": 12345})
never_meet_the_ps = partial(edit, task="worker1", event="peers_ready", ps_nonces={})
CASES = [
    Expected(meet_another_worker_later, 1, {"workers_met"}, "worker0 met a worker1 that is not the one"),
    Expected(meet_another_ps_later, 1, {"same_parameter_servers"}, "worker1 met another ps0 than the chief"),
    Expected(never_meet_the_ps, 1, {"same_parameter_servers"}, "worker1 never met ps0"),
    Expected(run_another_plan, 1, {"same_plan_and_release"}, "worker1 ran plan 0123456789ab"),
    Expected(run_another_release, 1, {"same_plan_and_release"}, "releases differ"),
    Expected(start_by_hand, 2, {"same_plan_and_release"}, "started by hand"),
    Expected(
        stop_the_run,
        1,
        {"ended_well"},
        "worker1 ended at global step 4",
        "the run did not end well, or these are not its records alone",
    ),
    Expected(
        fail_with_steps_unrecorded,
        1,
        {"ended_well", "contributions_add_up"},
        "worker0: the chief counted",
    ),
    Expected(fail_at_the_end, 1, {"ended_well"}, "worker1 failed (program): bug"),
    Expected(end_before_the_last_step, 1, {"ended_well"}, "of 500"),
    Expected(count_a_step_too_many, 1, {"contributions_add_up"}, "contributions add up to 40"),
    Expected(leave_out_a_local_step, 2, {"records_complete", "steps_accounted"}, "steps 1 to 1 are missing"),
    Expected(record_a_window_without_a_step, 1, {"records_complete"}, "comes after local step"),
    Expected(count_for_the_other, 1, {"contributions_add_up"}, "worker0: the chief counted"),
    Expected(initialise_again, 1, {"no_restart_from_zero"}, "initialised the model anew"),
    Expected(
        fall_back_without_a_checkpoint,
        1,
        {"no_restart_from_zero", "steps_accounted"},
        "no checkpoint explains it",
    ),
    Expected(
        meet_another_worker, 1, {"workers_met"}, "worker0 met a worker1 that is not the one of these records"
    ),
]


def test_the_clock_of_the_chiefs_host_changes_no_answer_and_no_figure(run: Path) -> None:
    """Ten minutes from the others', and a monotonic clock that began anew."""
    before = verdict_of(run)
    for task in ("ps0", "worker0", "evaluator0"):
        shifted = [
            record | {"wall": record["wall"] - 600, "monotonic": record["monotonic"] + 1e6}
            for record in records(run, task)
        ]
        rewrite(run, task, shifted)
    assert verdict_of(run).as_json() == before.as_json()


@pytest.mark.parametrize("expected", CASES, ids=str)
def test_a_contradiction_is_named_and_judged(run: Path, expected: Expected) -> None:
    expected.hold(run)


@pytest.mark.parametrize("damage", [take_the_file_of_another_run, take_the_chief_for_worker1])
def test_a_file_of_another_task_or_run_is_named(run: Path, damage: Callable[[Path], None]) -> None:
    damage(run)
    verdict = verdict_of(run)
    assert verdict.exit_code == 1
    assert "worker1: its file has " in detail(verdict, "records_complete")
    assert "workers_overlap" in checks(verdict, None)


def test_a_worker_that_joins_at_the_very_end_has_no_share(run: Path) -> None:
    """Everything that worker 1 does happens in the last steps; all the rest is consistent."""
    every = records(run, "worker1")
    steps = [record for record in every if record["event"] == "step"][-2:]
    done = 0
    for record in steps:
        done += record["steps"]
        record["local_step"] = done
    start = [record for record in every if record["event"] in {"started", "peers_ready"}]
    rewrite(run, "worker1", [*start, *steps, every[-1] | {"local_step": done}])
    total = records(run, "worker0")[-1]["global_step"]
    edit(run, "worker0", "finished", contributions={"worker0": total - done, "worker1": done})

    verdict = verdict_of(run)
    assert verdict.exit_code == 1
    assert {"fair_shares", "workers_overlap"} <= checks(verdict, False)
    assert "worker1 applied " in detail(verdict, "fair_shares")
    assert "expected at least 50%" in detail(verdict, "workers_overlap")
