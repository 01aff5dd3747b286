"""Records of a healthy run with impossible or foreign claims: each contradiction is found."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.psfleet.evidence.cases import Case, Expected, cases
from tests.psfleet.evidence.folder_damages import record_a_window_without_a_step
from tests.psfleet.evidence.program_folders import ending
from tests.psfleet.evidence.replications import count, counted
from tests.psfleet.evidence.run_folders import (
    begin_with,
    checks,
    detail,
    edit,
    events,
    fail,
    meet_again,
    records,
    rewrite,
    steps_and_others,
    tell_settings,
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


# Records of a healthy run that claim what cannot be, or come from elsewhere.
CASES = {
    "another worker met later": Case(
        partial(meet_again, task="worker0", worker_nonces={"worker1": 12345}),
        Expected(1, "workers_met", "worker0 met a worker1 whose nonce is not in"),
    ),
    "another ps met later": Case(
        partial(meet_again, task="worker1", ps_nonces={"ps0": 12345}),
        Expected(1, "same_parameter_servers", "worker1 met another ps0 than the chief"),
    ),
    "a ps that was never met": Case(
        partial(edit, tasks="worker1", event="peers_ready", ps_nonces={}),
        Expected(1, "same_parameter_servers", "worker1 never met ps0"),
    ),
    "another plan": Case(
        partial(edit, tasks="worker1", event="", plan_hash="0123456789ab"),
        Expected(1, "same_plan_and_release", "worker1 ran plan 0123456789ab"),
    ),
    "another release": Case(
        partial(edit, tasks="worker1", event="", release="release-2"),
        Expected(1, "same_plan_and_release", "releases differ"),
    ),
    "tasks that were started by hand": Case(
        partial(edit, tasks="ps0 worker0 worker1 evaluator0", event="", plan_hash="", release=""),
        Expected(2, "same_plan_and_release", "started by hand"),
    ),
    "a run that was stopped": Case(
        partial(edit, tasks="worker1", event="finished", reason="stopped"),
        Expected(
            1,
            "ended_well",
            "worker1 ended at global step 4",
            headline="the run did not end well, or these are not its records alone",
        ),
    ),
    "a failure with steps unrecorded": Case(
        (count_for_the_other, partial(fail, task="worker1", reason="bug")),
        Expected(1, "ended_well contributions_add_up", "worker0: the chief counted"),
    ),
    "a failure at the end": Case(
        partial(fail, task="worker1", reason="bug"),
        Expected(1, "ended_well", "worker1 failed (program): bug"),
    ),
    "an end before the last step": Case(
        partial(edit, tasks="worker0", event="finished", last_step=500), Expected(1, "ended_well", "of 500")
    ),
    "a step too many": Case(
        count_a_step_too_many, Expected(1, "contributions_add_up", "contributions add up to 40")
    ),
    "a local step that was left out": Case(
        leave_out_a_local_step, Expected(2, "records_complete steps_accounted", "are missing")
    ),
    "a window without a step": Case(
        record_a_window_without_a_step, Expected(1, "records_complete", "comes after local step")
    ),
    "steps that are counted for the other": Case(
        count_for_the_other, Expected(1, "contributions_add_up", "worker0: the chief counted")
    ),
    "a model that is initialised again": Case(
        initialise_again, Expected(1, "no_restart_from_zero", "initialised the model anew")
    ),
    "a fall back without a checkpoint": Case(
        fall_back_without_a_checkpoint,
        Expected(1, "no_restart_from_zero steps_accounted", "no checkpoint explains it"),
    ),
    "another worker met": Case(
        partial(edit, tasks="worker1", event="started", nonce=12345),
        Expected(1, "workers_met", "worker0 met a worker1 whose nonce is not in the records of worker1"),
    ),
    "a last step that nobody asked for": Case(
        partial(edit, tasks="worker0", event="finished", last_step=5),
        Expected(1, "ended_well", "the run was to end at global step 5, its settings ask for 400"),
    ),
    "epochs in place of steps": Case(
        (
            partial(tell_settings, epochs=2, steps=1000),
            partial(begin_with, tasks="worker0 worker1", epochs=2, steps=1000),
            partial(edit, tasks="worker0", event="finished", train_examples=20000),
        ),
        Expected(0, said=", global step 40"),
    ),
    "other epochs than its steps make": Case(
        (
            partial(tell_settings, epochs=2, steps=1000),
            partial(begin_with, tasks="worker0 worker1", epochs=2, steps=1000),
            partial(edit, tasks="worker0", event="finished", train_examples=10000),
        ),
        Expected(1, "ended_well", "the run was to end at global step 400, its settings ask for 200"),
    ),
    "another learning rate": Case(
        partial(begin_with, tasks="worker1", learning_rate=0.5),
        Expected(1, "same_settings", "worker1 had learning_rate 0.5, the run's settings ask for"),
    ),
    "more batches than its settings have": Case(
        partial(edit, tasks="worker1", event="step", batches=100000),
        Expected(1, "same_settings", "worker1 computed 100000 batches in 1 step, its push_every is 1"),
    ),
    "settings that are no object": Case(
        partial(write, name="settings.json", text="[]"),
        Expected(2, "every check", "settings.json: not a JSON object"),
    ),
    "a training that is no object": Case(
        partial(write, name="settings.json", text='{"training": ["linear"]}'),
        Expected(2, "every check", "settings.json: training is ['linear']; expected an object"),
    ),
    "a chief that found nothing": Case(
        partial(edit, tasks="worker0", event="evaluated", metrics={}),
        Expected(2, "evaluated_apart", "the chief did not record its weight"),
    ),
    "an end before what was recorded": Case(
        partial(edit, tasks="worker1", event="finished", local_step=3),
        Expected(1, "records_complete", "worker1: it finished after 3 local steps, and recorded"),
    ),
    "a ps of another run": Case(
        partial(edit, tasks="ps0", event="started", nonce=12345),
        Expected(1, "same_parameter_servers", "worker0 met a ps0 whose nonce is not in the records of ps0"),
    ),
    # What medians of both signs are is chance.
    "losses beyond all measure": Case(
        partial(alternate, loss=1.7e308), Expected(1, said="the loss was not finite, or above 1e+30,")
    ),
    "a loss at its target from the beginning": Case(
        partial(edit, tasks="worker0 worker1", event="step", loss=0.1, loss_mean=0.1),
        Expected(2, "loss_fell", "the loss was at its target of 0.2 from the beginning"),
    ),
    "a worker that learned nothing": Case(
        partial(edit, tasks="worker1", event="step", loss=2.35, loss_mean=2.35),
        Expected(1, said="the loss of worker1 alone was 2.35 in its last"),
    ),
    "a run of the trainer's that is told as a program's": Case(
        partial(
            write,
            name="settings.json",
            text='{"training": {}, "program": {"release": "", "file": "x", "arguments": [], "flags": true}}',
        ),
        Expected(1, said="ran program , settings.json names"),
    ),
    "litter of a desktop, and a file with nothing in it": Case(
        (
            partial(write, name="events/._worker0.jsonl", text="\x00\x05"),
            partial(write, name="events/notes.jsonl", text=""),
        ),
        Expected(0),
    ),
}


@cases(CASES)
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
