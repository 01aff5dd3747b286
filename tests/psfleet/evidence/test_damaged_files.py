"""A healthy run's folder with files that are cut, lost or unreadable: nothing is proven on too little."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.psfleet.evidence.adversaries.corpus import EVERY_CHECK
from tests.psfleet.evidence.cases import Expected
from tests.psfleet.evidence.run_folders import (
    checks,
    drop,
    events,
    lose,
    records,
    rewrite,
    verdict_of,
)


def put_garbage_between(run: Path) -> None:
    lines = events(run, "worker1").read_bytes().split(b"\n")
    events(run, "worker1").write_bytes(b"\n".join([*lines[:5], b"\xff\x00 garbage {", *lines[5:]]))


def put_only_garbage(run: Path) -> None:
    events(run, "worker1").write_bytes(bytes(range(256)) * 50)


def lose_a_window(run: Path) -> None:
    every = records(run, "worker1")
    rewrite(run, "worker1", [*every[:20], *every[21:]])


def lose_the_last_window(run: Path) -> None:
    every = records(run, "worker1")
    last = max(number for number, record in enumerate(every) if record["event"] == "step")
    rewrite(run, "worker1", [*every[:last], *every[last + 1 :]])


def lose_the_events(run: Path) -> None:
    shutil.rmtree(run / "events")


def lose_the_folder(run: Path) -> None:
    shutil.rmtree(run)


lose_the_ps = partial(lose, task="ps0")
lose_the_chief = partial(lose, task="worker0")
lose_whom_the_chief_met = partial(drop, task="worker0", event="peers_ready")


def spoil_the_plan(run: Path) -> None:
    (run / "plan.json").write_text("{")


def forge_the_plan(run: Path) -> None:
    plan = json.loads((run / "plan.json").read_text())
    plan["tasks"][1]["port"] += 1
    (run / "plan.json").write_text(json.dumps(plan))


CASES = [
    Expected(
        put_garbage_between,
        2,
        {"records_complete", "steps_accounted"},
        "events/worker1.jsonl, line 6: not JSON",
    ),
    Expected(lose_a_window, 2, {"records_complete", "steps_accounted"}, "are missing"),
    Expected(lose_the_last_window, 2, {"records_complete", "steps_accounted"}, "are missing"),
    Expected(
        lose_the_ps, 2, {"records_complete", "same_plan_and_release", "ended_well"}, "ps0.jsonl: No such file"
    ),
    Expected(lose_whom_the_chief_met, 2, {"same_parameter_servers"}, "with no word from the chief"),
    Expected(lose_the_folder, 2, EVERY_CHECK, "is not a folder"),
    Expected(spoil_the_plan, 2, EVERY_CHECK, "plan.json: not JSON"),
    Expected(forge_the_plan, 2, EVERY_CHECK, "the plan's hash is"),
]


@pytest.mark.parametrize("expected", CASES, ids=str)
def test_damage_is_named_and_judged(run: Path, expected: Expected) -> None:
    expected.hold(run)


@pytest.mark.parametrize("damage", [lose_the_chief, lose_the_events, put_only_garbage])
def test_without_the_chief_or_all_records_nothing_is_proven(
    run: Path, damage: Callable[[Path], None]
) -> None:
    damage(run)
    verdict = verdict_of(run)
    assert verdict.exit_code == 2, verdict.failing
    assert {"records_complete", "ended_well"} <= checks(verdict, None)


@pytest.mark.parametrize("task", ["ps0", "worker0", "worker1", "evaluator0"])
def test_a_file_that_is_cut_short_leaves_the_question_open_wherever_it_is_cut(run: Path, task: str) -> None:
    """What is left of a file never speaks against the run: the other files do, where there is something.

    It is cut within a line, and just where that line begins: then nothing but its end is missing.
    """
    content = events(run, task).read_bytes()
    within = range(0, len(content) - 1, max(len(content) // 30, 1))
    last_line = content.rindex(b"\n", 0, -1) + 1
    for end in sorted({*within, *(content.rfind(b"\n", 0, cut) + 1 for cut in within), last_line}):
        events(run, task).write_bytes(content[:end])
        verdict = verdict_of(run)
        assert verdict.exit_code == 2, (end, verdict.failing)


def test_a_chief_that_is_cut_short_does_not_hide_that_another_trained_alone(
    split_brain: Path, run: Path
) -> None:
    shutil.copytree(split_brain, run, dirs_exist_ok=True)
    content = events(run, "worker0").read_bytes()
    events(run, "worker0").write_bytes(content[: len(content) // 2])
    assert checks(verdict_of(run), False) == {"steps_interleave", "fingerprints_agree"}


@pytest.mark.parametrize("task", ["ps0", "worker0", "worker1", "evaluator0"])
def test_no_single_line_can_be_lost_without_notice(run: Path, task: str) -> None:
    """The run must stay proven only where the line says nothing that a check needs."""
    every = records(run, task)
    spare = {"restored"} if task == "evaluator0" else set()
    for number, lost in enumerate(every):
        if number > 6 and lost["event"] == "step" and number % 10:
            continue  # one window is as good as the next
        rewrite(run, task, [*every[:number], *every[number + 1 :]])
        assert (verdict_of(run).exit_code == 0) == (lost["event"] in spare), lost
