"""Whether the records are whole, of one run, and tell of a good end."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.psfleet.evidence.cases import ANY, Case, cases, do
from tests.psfleet.evidence.folder_damages import record_a_window_without_a_step
from tests.psfleet.evidence.program_folders import ending
from tests.psfleet.evidence.replications import IN_GRAPH
from tests.psfleet.evidence.run_folders import (
    begin_with,
    checks,
    detail,
    drop,
    edit,
    events,
    fail,
    lose,
    records,
    rewrite,
    steps_and_others,
    tell_settings,
    verdict_of,
    write,
)


def put_garbage_between(run: Path) -> None:
    lines = events(run, "worker1").read_bytes().split(b"\n")
    events(run, "worker1").write_bytes(b"\n".join([*lines[:5], b"\xff\x00 garbage {", *lines[5:]]))


def lose_the_last_window(run: Path) -> None:
    lost = steps_and_others(run, "worker1")[0][-1]
    rewrite(run, "worker1", [record for record in records(run, "worker1") if record != lost])


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


def put_another_beside_it(run: Path) -> None:
    shutil.copy(events(run, "worker0"), events(run, "worker1"))
    edit(run, "worker1", "", index=1)


def take_the_chief_for_worker1(run: Path) -> None:
    shutil.copy(events(run, "worker0"), events(run, "worker1"))


RECORDS_COMPLETE = {
    "a file of another run": Case(
        do(edit, "worker1", "", run_id="another"), 1, "worker1: its file has ", ANY
    ),
    "a file of another task": Case(take_the_chief_for_worker1, 1, "worker1: its file has ", ANY),
    "no records of the chief": Case(do(lose, "worker0"), 2, "worker0.jsonl: No such file", ANY),
    "garbage between lines": Case(
        put_garbage_between,
        2,
        "events/worker1.jsonl, line 6: not JSON",
        failing="steps_accounted records_complete",
    ),
    "the last window that is lost": Case(
        lose_the_last_window, 2, "are missing", failing="steps_accounted records_complete"
    ),
    "a local step that was left out": Case(
        leave_out_a_local_step, 2, "are missing", failing="steps_accounted records_complete"
    ),
    "a window without a step": Case(record_a_window_without_a_step, 1, "comes after local step"),
    "an end before what was recorded": Case(
        do(edit, "worker1", "finished", local_step=3), 1, "worker1: it finished after 3 local steps, and"
    ),
    "litter of a desktop, and a file with nothing in it": Case(
        (do(write, "events/._worker0.jsonl", "\x00\x05"), do(write, "events/notes.jsonl", "")), 0
    ),
    "no records of a server": Case(
        do(lose, "server0"), 2, "server0.jsonl: No such file", failing=ANY, kind="in_graph"
    ),
    "another worker beside a local one": Case(
        put_another_beside_it, 1, "worker1 left records, but", kind="local"
    ),
}
SAME_PLAN_AND_RELEASE = {
    "the plan of another run": Case(
        do(edit, "evaluator0", "", plan_hash="0123456789ab"), 1, "evaluator0 ran plan 0123456789ab"
    ),
    "another plan": Case(
        do(edit, "worker1", "", plan_hash="0123456789ab"), 1, "worker1 ran plan 0123456789ab"
    ),
    "another release": Case(do(edit, "worker1", "", release="release-2"), 1, "releases differ"),
    "tasks that were started by hand": Case(
        do(edit, "ps0 worker0 worker1 evaluator0", "", plan_hash="", release=""), 2, "started by hand"
    ),
    "a run of the trainer's that is told as a program's": Case(
        do(
            write,
            "settings.json",
            '{"training": {}, "program": {"release": "", "file": "x", "arguments": [], "flags": true}}',
        ),
        1,
        "ran program , settings.json names",
        failing=ANY,
    ),
    "another program": Case(
        do(edit, "worker1", "", program="decaf"), 1, "worker1 ran program decaf", kind="program"
    ),
}
SAME_SETTINGS = {
    "another learning rate": Case(
        do(begin_with, "worker1", learning_rate=0.5), 1, "worker1 had learning_rate 0.5, the run's settings"
    ),
    "more batches than its settings have": Case(
        do(edit, "worker1", "step", batches=99),
        1,
        "worker1 computed 99 batches in 1 step, its push_every is 1",
    ),
    "settings that ask for async": Case(
        do(tell_settings, replication="async", replicas_to_aggregate=None),
        1,
        "worker0 trained sync, 2 of 3",
        failing=ANY,
        kind="sync",
    ),
    "a worker that was told otherwise": Case(
        do(begin_with, "worker1", replication="async"), 1, "worker1 trained async, the run is", kind="sync"
    ),
    "a worker that trained another model": Case(
        do(begin_with, "worker1", model="linear"), 1, "worker1 trained linear, the run's", kind="sync"
    ),
    "a worker that tells no settings": Case(
        do(drop, "worker1", "started"), 2, "worker1 did not record its settings", failing=ANY, kind="sync"
    ),
}
ENDED_WELL = {
    "a run that was stopped": Case(
        do(edit, "worker1", "finished", reason="stopped"),
        1,
        "worker1 ended at global step 4",
        headline="the run did not end well, or these are not its records alone",
    ),
    "a failure at the end": Case(do(fail, "worker1", "bug"), 1, "worker1 failed (program): bug"),
    "an end before the last step": Case(do(edit, "worker0", "finished", last_step=500), 1, "of 500"),
    "a last step that nobody asked for": Case(
        do(edit, "worker0", "finished", last_step=5), 1, "to end at global step 5, its settings ask for 400"
    ),
    "epochs in place of steps": Case(
        (
            do(tell_settings, epochs=2, steps=1000),
            do(begin_with, "worker0 worker1", epochs=2, steps=1000),
            do(edit, "worker0", "finished", train_examples=20000),
        ),
        0,
        ", global step 40",
    ),
    "other epochs than its steps make": Case(
        (
            do(tell_settings, epochs=2, steps=1000),
            do(begin_with, "worker0 worker1", epochs=2, steps=1000),
            do(edit, "worker0", "finished", train_examples=10000),
        ),
        1,
        "the run was to end at global step 400, its settings ask for 200",
    ),
    "a server that failed": Case(
        do(fail, "server0", "bug"), 1, "server0 failed (program): bug", kind="async_on_servers"
    ),
}
NO_RESTART_FROM_ZERO = {
    "a model that is initialised again": Case(initialise_again, 1, "initialised the model anew"),
    "a fall back without a checkpoint": Case(
        fall_back_without_a_checkpoint,
        1,
        "no checkpoint explains it",
        failing="steps_accounted no_restart_from_zero",
    ),
}


@cases(
    records_complete=RECORDS_COMPLETE,
    same_plan_and_release=SAME_PLAN_AND_RELEASE,
    same_settings=SAME_SETTINGS,
    ended_well=ENDED_WELL,
    no_restart_from_zero=NO_RESTART_FROM_ZERO,
)
def test_each_contradiction_or_gap_is_named(copy_of: Callable[[str], Path], case: Case) -> None:
    case.hold(copy_of(case.kind))


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


def test_a_resumed_run_counts_as_resumed_and_not_as_restarted(run: Path) -> None:
    for task in ("worker0", "worker1", "ps0"):
        first, *more, last = records(run, task)
        stopped, later = last | {"reason": "stopped"}, {"nonce": 7, "pid": 99999}
        rewrite(run, task, [first, stopped, *(record | later for record in (first, *more, last))])
    verdict = verdict_of(run)
    assert detail(verdict, "ended_well").endswith(", resumed 1 time after a stop")
    assert "started again" not in "".join(check.detail for check in verdict.checks)


def test_a_process_that_was_stopped_before_it_met_the_others_is_ignored(
    copy_of: Callable[[str], Path],
) -> None:
    """Systemd may restart a task that has finished, until train.yml ends that process."""
    run = copy_of(IN_GRAPH)
    every = records(run, "worker0")
    later = {"nonce": 7, "pid": 99999, "monotonic": 1.0}
    stopped = every[-1] | later | {"reason": "stopped", "local_step": 0, "global_step": 0}
    rewrite(run, "worker0", [*every, every[0] | later, stopped])
    assert checks(verdict_of(run), False) == set()


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
