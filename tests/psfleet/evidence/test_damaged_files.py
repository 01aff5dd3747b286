"""A healthy run's folder with files that are cut, lost or unreadable: nothing is proven on too little."""

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from psfleet.evidence import reading
from tests.psfleet.evidence.cases import Case, Expected, cases
from tests.psfleet.evidence.run_folders import (
    checks,
    detail,
    drop,
    events,
    lose,
    records,
    rewrite,
    steps_and_others,
    verdict_of,
    write,
)


def put_garbage_between(run: Path) -> None:
    lines = events(run, "worker1").read_bytes().split(b"\n")
    events(run, "worker1").write_bytes(b"\n".join([*lines[:5], b"\xff\x00 garbage {", *lines[5:]]))


def put_only_garbage(run: Path) -> None:
    events(run, "worker1").write_bytes(bytes(range(256)) * 50)


def lose_a_window(run: Path, number: int) -> None:
    lost = steps_and_others(run, "worker1")[0][number]
    rewrite(run, "worker1", [record for record in records(run, "worker1") if record != lost])


def lose_the_events(run: Path) -> None:
    shutil.rmtree(run / "events")


def lose_the_folder(run: Path) -> None:
    shutil.rmtree(run)


lose_the_chief = partial(lose, task="worker0")


def forge_the_plan(run: Path) -> None:
    plan = json.loads((run / "plan.json").read_text())
    plan["tasks"][1]["port"] += 1
    (run / "plan.json").write_text(json.dumps(plan))


def swell(run: Path, name: str) -> None:
    """Make a file a terabyte long without using disk space."""
    os.truncate(run / name, 2**40)


def put_many_values(run: Path) -> None:
    (run / "plan.json").write_text(f"[{'[],' * 20_000}0]")


# Files that are cut, lost or unreadable.
CASES = {
    "garbage between lines": Case(
        put_garbage_between,
        Expected(2, "records_complete steps_accounted", "events/worker1.jsonl, line 6: not JSON"),
    ),
    "a window that is lost": Case(
        partial(lose_a_window, number=20), Expected(2, "records_complete steps_accounted", "are missing")
    ),
    "the last window that is lost": Case(
        partial(lose_a_window, number=-1), Expected(2, "records_complete steps_accounted", "are missing")
    ),
    "no records of the ps": Case(
        partial(lose, task="ps0"),
        Expected(2, "records_complete same_plan_and_release ended_well", "ps0.jsonl: No such file"),
    ),
    "no word of whom the chief met": Case(
        partial(drop, tasks="worker0", event="peers_ready"),
        Expected(2, "same_parameter_servers", "the chief did not record which ps it met"),
    ),
    "no folder": Case(lose_the_folder, Expected(2, "every check", "is not a folder")),
    "a plan that cannot be read": Case(
        partial(write, name="plan.json", text="{"), Expected(2, "every check", "plan.json: not JSON")
    ),
    "a plan that was forged": Case(forge_the_plan, Expected(2, "every check", "the plan's hash is")),
    "records that have no end": Case(
        partial(swell, name="events/worker1.jsonl"),
        Expected(
            2, said="events/worker1.jsonl: it has 1,099,511,627,776 bytes, and at most 64,000,000 are read"
        ),
    ),
    "a plan that has no end": Case(
        partial(swell, name="plan.json"),
        Expected(2, "every check", "plan.json: it has 1,099,511,627,776 bytes"),
    ),
    "a plan of more values than memory is taken for": Case(
        put_many_values, Expected(2, "every check", "plan.json: it has 40,001 values")
    ),
}


@cases(CASES)
def test_each_damage_gets_its_expected_verdict_and_message(run: Path, case: Case) -> None:
    case.hold(run)


@pytest.mark.parametrize("damage", [lose_the_chief, lose_the_events, put_only_garbage])
def test_a_run_without_the_chiefs_or_any_readable_records_is_not_proven(
    run: Path, damage: Callable[[Path], None]
) -> None:
    damage(run)
    verdict = verdict_of(run)
    assert verdict.exit_code == 2, verdict.failing
    assert {"records_complete", "ended_well"} <= checks(verdict, None)


@pytest.mark.parametrize("task", ["ps0", "worker0", "worker1", "evaluator0"])
def test_a_file_that_is_cut_at_any_place_leaves_the_verdict_open(run: Path, task: str) -> None:
    """The rest of a cut file never contradicts the run.

    The file is cut within a line, and exactly at the beginning of that line.
    """
    content = events(run, task).read_bytes()
    within = range(0, len(content) - 1, max(len(content) // 30, 1))
    last_line = content.rindex(b"\n", 0, -1) + 1
    for end in sorted({*within, *(content.rfind(b"\n", 0, cut) + 1 for cut in within), last_line}):
        events(run, task).write_bytes(content[:end])
        verdict = verdict_of(run)
        assert verdict.exit_code == 2, (end, verdict.failing)


def test_the_records_of_a_run_are_read_up_to_a_limit_for_all_tasks_together(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [events(run, task).stat().st_size for task in ("ps0", "worker0", "worker1")]
    monkeypatch.setattr(reading, "MOST_OF_A_RUN", sum(sizes) + events(run, "evaluator0").stat().st_size)
    assert verdict_of(run).exit_code == 0
    monkeypatch.setattr(reading, "MOST_OF_A_RUN", reading.MOST_OF_A_RUN - 1)
    verdict = verdict_of(run)
    assert verdict.exit_code == 2
    assert "events/worker1.jsonl: it has" in detail(verdict, "records_complete")
    assert "(of all tasks" in detail(verdict, "records_complete")


def test_a_cut_file_of_the_chief_does_not_hide_a_worker_that_trained_alone(
    split_brain: Path, run: Path
) -> None:
    shutil.copytree(split_brain, run, dirs_exist_ok=True)
    content = events(run, "worker0").read_bytes()
    events(run, "worker0").write_bytes(content[: len(content) // 2])
    assert checks(verdict_of(run), False) == {
        "same_parameter_servers",
        "steps_interleave",
        "fingerprints_agree",
    }


@pytest.mark.parametrize("task", ["ps0", "worker0", "worker1", "evaluator0"])
def test_the_loss_of_any_necessary_line_is_noticed(run: Path, task: str) -> None:
    """The run stays proven only if no check needs the line."""
    every = records(run, task)
    # Any single gradient test may be missing, and no check needs what processes used.
    spare = {"restored"} if task == "evaluator0" else {"gradients", "resources"}
    for number, lost in enumerate(every):
        if number > 6 and lost["event"] == "step" and number % 10:
            continue  # the other windows are alike
        rewrite(run, task, [*every[:number], *every[number + 1 :]])
        # A slow run saves more often; the last checkpoint alone is necessary.
        later = [each["event"] for each in every[number + 1 :]]
        replaced = lost["event"] == "checkpointed" and "checkpointed" in later
        assert (verdict_of(run).exit_code == 0) == (replaced or lost["event"] in spare), lost
