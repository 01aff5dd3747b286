"""A healthy run's folder, damaged or forged in one way each: never a crash, never proven on too little."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.evidence.run_folders import (
    checks,
    detail,
    drop,
    edit,
    events,
    records,
    rewrite,
    verdict_of,
)

EVERY_CHECK = {
    "records_complete",
    "same_plan_and_release",
    "ended_well",
    "no_restart_from_zero",
    "same_parameter_servers",
    "workers_met",
    "contributions_add_up",
    "fair_shares",
    "workers_overlap",
    "steps_interleave",
    "loss_finite",
    "loss_fell",
    "model_converged",
}


def cut_the_last_line(run: Path) -> None:
    content = events(run, "worker1").read_bytes()
    events(run, "worker1").write_bytes(content[:-40])


def cut_in_the_middle(run: Path) -> None:
    content = events(run, "worker1").read_bytes()
    events(run, "worker1").write_bytes(content[: len(content) // 3])


def cut_the_chief(run: Path) -> None:
    content = events(run, "worker0").read_bytes()
    # Well past the half, where its span would be too short by chance: here only its end is missing.
    events(run, "worker0").write_bytes(content[: len(content) * 3 // 4])


def put_garbage_between(run: Path) -> None:
    lines = events(run, "worker1").read_bytes().split(b"\n")
    events(run, "worker1").write_bytes(b"\n".join([*lines[:5], b"\xff\x00 garbage {", *lines[5:]]))


def put_only_garbage(run: Path) -> None:
    events(run, "worker1").write_bytes(bytes(range(256)) * 50)


def double_every_line(run: Path) -> None:
    rewrite(run, "worker1", [record for record in records(run, "worker1") for _ in range(2)])


def reverse_the_steps(run: Path) -> None:
    every = records(run, "worker1")
    steps = [record for record in every if record["event"] == "step"]
    others = [record for record in every if record["event"] != "step"]
    rewrite(run, "worker1", [*others[:-1], *reversed(steps), others[-1]])


def lose_a_window(run: Path) -> None:
    every = records(run, "worker1")
    rewrite(run, "worker1", [*every[:20], *every[21:]])


def lose_the_last_window(run: Path) -> None:
    every = records(run, "worker1")
    last = max(number for number, record in enumerate(every) if record["event"] == "step")
    rewrite(run, "worker1", [*every[:last], *every[last + 1 :]])


def take_the_file_of_another_run(run: Path) -> None:
    edit(run, "worker1", "", run_id="another")


def add_a_task_that_was_not_planned(run: Path) -> None:
    shutil.copy(events(run, "worker1"), events(run, "worker2"))
    edit(run, "worker2", "", index=2)


def take_the_chief_for_worker1(run: Path) -> None:
    shutil.copy(events(run, "worker0"), events(run, "worker1"))


def lose_worker1(run: Path) -> None:
    events(run, "worker1").unlink()


def lose_the_ps(run: Path) -> None:
    events(run, "ps0").unlink()


def lose_the_chief(run: Path) -> None:
    events(run, "worker0").unlink()


def lose_the_events(run: Path) -> None:
    shutil.rmtree(run / "events")


def lose_everything(run: Path) -> None:
    shutil.rmtree(run)
    run.mkdir()


def lose_the_folder(run: Path) -> None:
    shutil.rmtree(run)


def spoil_the_plan(run: Path) -> None:
    (run / "plan.json").write_text("{")


def forge_the_plan(run: Path) -> None:
    plan = json.loads((run / "plan.json").read_text())
    plan["tasks"][1]["port"] += 1
    (run / "plan.json").write_text(json.dumps(plan))


def run_another_plan(run: Path) -> None:
    edit(run, "worker1", "", plan_hash="0123456789ab")


def run_another_release(run: Path) -> None:
    edit(run, "worker1", "", release="release-2")


def start_by_hand(run: Path) -> None:
    for task in ("ps0", "worker0", "worker1"):
        edit(run, task, "", plan_hash="", release="")


def shift_a_clock(run: Path) -> None:
    changed = [
        record | {"wall": record["wall"] + 600, "monotonic": record["monotonic"] - 3000}
        for record in records(run, "worker1")
    ]
    rewrite(run, "worker1", changed)


def lose_a_number_in_the_loss(run: Path) -> None:
    every = records(run, "worker1")
    rewrite(run, "worker1", [*every[:30], every[30] | {"loss": None, "loss_mean": None}, *every[31:]])


def stop_the_run(run: Path) -> None:
    edit(run, "worker1", "finished", reason="stopped")


def fail_at_the_end(run: Path) -> None:
    every = records(run, "worker1")
    rewrite(
        run, "worker1", [*every[:-1], every[-1] | {"event": "failed", "class": "program", "reason": "bug"}]
    )


def end_before_the_last_step(run: Path) -> None:
    edit(run, "worker0", "finished", last_step=500)


def count_a_step_too_many(run: Path) -> None:
    finished = records(run, "worker0")[-1]
    counted = finished["contributions"]
    edit(run, "worker0", "finished", contributions=counted | {"worker1": counted["worker1"] + 1})


def count_for_the_other(run: Path) -> None:
    counted = records(run, "worker0")[-1]["contributions"]
    moved = {"worker0": counted["worker0"] - 9, "worker1": counted["worker1"] + 9}
    edit(run, "worker0", "finished", contributions=moved)


def initialise_again(run: Path) -> None:
    every = records(run, "worker0")
    begun = next(record for record in every if record["event"] == "initialised")
    again = begun | {"monotonic": every[40]["monotonic"]}
    rewrite(run, "worker0", [*every[:40], again, *every[40:]])


def fall_back_without_a_checkpoint(run: Path) -> None:
    changed = records(run, "worker1")
    for record in changed[40:]:
        if record["event"] == "step":
            record["global_step_before"] -= 50
            record["global_step_after"] -= 50
    rewrite(run, "worker1", changed)


def meet_another_worker(run: Path) -> None:
    edit(run, "worker1", "started", nonce=12345)


def train_no_better(run: Path) -> None:
    for task in ("worker0", "worker1"):
        edit(run, task, "step", loss=5.0, loss_mean=5.0)


def miss_the_line(run: Path) -> None:
    edit(run, "worker0", "evaluated", metrics={"weight": 1.2, "bias": 10.0, "loss": 0.3})


def learn_digits_badly(run: Path) -> None:
    learn_digits(run, 0.31)


def learn_digits_well(run: Path) -> None:
    learn_digits(run, 0.93)


def learn_digits(run: Path, accuracy: float) -> None:
    settings = records(run, "worker0")[0]["settings"] | {"model": "mnist_mlp"}
    edit(run, "worker0", "started", settings=settings)
    edit(run, "worker0", "evaluated", metrics={"accuracy": accuracy, "cross_entropy": 0.4})


def evaluate_something_else(run: Path) -> None:
    edit(run, "worker0", "evaluated", metrics={"loss": 0.1})


def evaluate_too_early(run: Path) -> None:
    edit(run, "worker0", "evaluated", global_step=100)


def evaluate_never(run: Path) -> None:
    drop(run, "worker0", "evaluated")


def train_an_unknown_model(run: Path) -> None:
    edit(run, "worker0", "started", settings={"model": "my_model"})


@dataclass(frozen=True)
class Expected:
    """The exit code, the checks that keep the run from being proven, and a part of what is said."""

    damage: Callable[[Path], None]
    exit_code: int
    failing: set[str]
    said: str


CASES = [
    Expected(shift_a_clock, 0, set(), ""),
    Expected(learn_digits_well, 0, set(), ""),
    Expected(cut_the_last_line, 2, {"records_complete", "ended_well"}, "the line does not end: cut short"),
    Expected(
        cut_in_the_middle,
        2,
        {"records_complete", "ended_well", "contributions_add_up", "workers_overlap"},
        "events/worker1.jsonl, line",
    ),
    Expected(put_garbage_between, 2, {"records_complete"}, "events/worker1.jsonl, line 6: not JSON"),
    Expected(double_every_line, 2, {"records_complete"}, "twice in its file"),
    Expected(lose_a_window, 2, {"records_complete"}, "are missing"),
    Expected(lose_the_last_window, 2, {"records_complete"}, "are missing"),
    Expected(reverse_the_steps, 1, {"records_complete", "no_restart_from_zero"}, "comes after local step"),
    Expected(add_a_task_that_was_not_planned, 1, {"records_complete"}, "worker2 left records, but"),
    Expected(lose_the_ps, 2, {"records_complete", "same_plan_and_release"}, "ps0.jsonl: No such file"),
    Expected(lose_everything, 2, EVERY_CHECK, "plan.json: No such file"),
    Expected(lose_the_folder, 2, EVERY_CHECK, "is not a folder"),
    Expected(spoil_the_plan, 2, EVERY_CHECK, "plan.json: not JSON"),
    Expected(forge_the_plan, 2, EVERY_CHECK, "the plan's hash is"),
    Expected(run_another_plan, 1, {"same_plan_and_release"}, "worker1 ran plan 0123456789ab"),
    Expected(run_another_release, 1, {"same_plan_and_release"}, "releases differ"),
    Expected(start_by_hand, 2, {"same_plan_and_release"}, "started by hand"),
    Expected(lose_a_number_in_the_loss, 1, {"loss_finite"}, "worker1: the loss was no finite number"),
    Expected(stop_the_run, 1, {"ended_well"}, "worker1 ended at global step 4"),
    Expected(fail_at_the_end, 1, {"ended_well"}, "worker1 failed (program): bug"),
    Expected(end_before_the_last_step, 1, {"ended_well"}, "of 500"),
    Expected(
        count_a_step_too_many,
        1,
        {"contributions_add_up"},
        "contributions add up to 40",
    ),
    Expected(count_for_the_other, 1, {"contributions_add_up"}, "worker0: the ps counted"),
    Expected(initialise_again, 1, {"no_restart_from_zero"}, "initialised the model anew"),
    Expected(fall_back_without_a_checkpoint, 1, {"no_restart_from_zero"}, "no checkpoint explains it"),
    Expected(
        meet_another_worker, 1, {"workers_met"}, "worker0 met a worker1 that is not the one of these records"
    ),
    Expected(train_no_better, 1, {"loss_fell"}, "the loss went from 5 to 5"),
    Expected(miss_the_line, 1, {"model_converged"}, "weight is 1.2000, expected 2 +- 0.2"),
    Expected(learn_digits_badly, 1, {"model_converged"}, "accuracy is 0.3100, expected at least 0.9"),
    Expected(evaluate_something_else, 2, {"model_converged"}, "weight was not evaluated"),
    Expected(evaluate_too_early, 2, {"model_converged"}, "the last evaluation is of global step 100"),
    Expected(evaluate_never, 2, {"model_converged"}, "did not evaluate"),
    Expected(train_an_unknown_model, 2, {"model_converged"}, "no goal is known for model 'my_model'"),
]


@pytest.mark.parametrize("expected", CASES, ids=lambda case: case.damage.__name__)
def test_damage_is_named_and_judged(run: Path, expected: Expected) -> None:
    expected.damage(run)
    verdict = verdict_of(run)
    assert verdict.exit_code == expected.exit_code, verdict.failing
    assert {check.check for check in verdict.failing} == expected.failing
    assert any(expected.said in check.detail for check in verdict.checks)
    json.dumps(verdict.as_json(), allow_nan=False)


def test_a_loss_that_is_no_number_is_not_compared_with_others(run: Path) -> None:
    lose_a_number_in_the_loss(run)
    assert checks(verdict_of(run), None) == {"loss_fell"}
    assert verdict_of(run).figures["loss_first"] is None


def test_without_its_records_a_worker_is_not_believed(run: Path) -> None:
    lose_worker1(run)
    verdict = verdict_of(run)
    assert verdict.exit_code == 2
    unknown = {"records_complete", "same_parameter_servers", "contributions_add_up", "workers_overlap"}
    assert unknown <= checks(verdict, None)
    assert "worker1.jsonl: No such file" in detail(verdict, "records_complete")


@pytest.mark.parametrize("damage", [lose_the_chief, lose_the_events, put_only_garbage])
def test_without_the_chief_or_all_records_nothing_is_proven(
    run: Path, damage: Callable[[Path], None]
) -> None:
    damage(run)
    verdict = verdict_of(run)
    assert verdict.exit_code == 2, verdict.failing
    assert {"records_complete", "ended_well"} <= checks(verdict, None)


def test_a_chief_that_is_cut_short_proves_nothing(run: Path) -> None:
    """What is left of its records may speak against the run, or not: that hangs on where the cut falls."""
    cut_the_chief(run)
    verdict = verdict_of(run)
    assert verdict.exit_code != 0
    assert "records_complete" not in checks(verdict, True)


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


@pytest.mark.parametrize("task", ["ps0", "worker0", "worker1"])
def test_no_single_line_can_be_lost_without_notice(run: Path, task: str) -> None:
    """The run must stay proven only where the line says nothing that a check needs."""
    every = records(run, task)
    spare = {"checkpointed", "finished"} if task == "ps0" else {"checkpointed"}
    for number, lost in enumerate(every):
        if number > 6 and lost["event"] == "step" and number % 10:
            continue  # one window is as good as the next
        rewrite(run, task, [*every[:number], *every[number + 1 :]])
        assert (verdict_of(run).exit_code == 0) == (lost["event"] in spare), lost
