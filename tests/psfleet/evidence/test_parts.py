"""Runs that were resumed with another number of workers: each part is judged with its own workers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from psfleet.evidence.reading import read_run
from tests.psfleet.evidence.run_folders import (
    ask_for,
    checks,
    detail,
    edit,
    lose,
    records,
    rewrite,
    verdict_of,
    write,
)


@pytest.fixture
def resized(copy_of: Callable[[str], Path]) -> Path:
    """One ps and two workers, then two and three, then the first ones again."""
    return copy_of("resized")


def test_a_resized_run_is_proven_with_the_workers_of_each_part(resized: Path) -> None:
    verdict = verdict_of(resized)
    assert verdict.verdict == "proven", verdict.failing
    assert verdict.headline.endswith("; its ps were 1, then 2, then 1; its workers were 2, then 3, then 2")
    first, second, third = verdict.figures["parts"]
    assert [(part["ps"], part["workers"]) for part in (first, second, third)] == [(1, 2), (2, 3), (1, 2)]
    assert first["first_step"] == 0
    assert (first["last_step"], second["last_step"]) == (second["first_step"], third["first_step"])
    assert third["last_step"] == verdict.figures["global_steps"]
    assert "part 2 (3 workers): 3 workers found each other's nonces" in detail(verdict, "workers_met")


def test_an_evaluator_belongs_to_the_part_whose_plan_it_names(resized: Path) -> None:
    """Each part was evaluated; what an evaluator of one part writes may come after that of the next."""
    every = records(resized, "evaluator0")
    lives = {pid: [each for each in every if each["pid"] == pid] for pid in [each["pid"] for each in every]}
    first, second, third = lives.values()
    rewrite(resized, "evaluator0", [*second, *first, *third])
    verdict = verdict_of(resized)
    assert verdict.verdict == "proven", verdict.failing
    rewrite(resized, "evaluator0", [*first, *second, *[each | {"plan_hash": "0ther"} for each in third]])
    found = detail(verdict_of(resized), "same_plan_and_release")
    assert found.startswith("part 3 (2 workers): evaluator0 ran plan 0ther, plan.json is ")
    rewrite(resized, "evaluator0", [*first, *[each | {"release": "other"} for each in second], *third])
    assert "part 2 (3 workers): releases differ: " in detail(verdict_of(resized), "same_plan_and_release")


@pytest.mark.chaos
def test_synchronous_steps_aggregate_as_many_gradients_as_the_part_has_workers(
    copy_of: Callable[[str], Path],
) -> None:
    verdict = verdict_of(copy_of("resized_sync"))
    assert verdict.verdict == "proven", verdict.failing
    assert verdict.headline.endswith("; its ps were 2, then 1; its workers were 3, then 2")


def test_an_earlier_part_needs_the_records_of_its_workers(resized: Path) -> None:
    lose(resized, "worker2")
    verdict = verdict_of(resized)
    assert verdict.verdict == "cannot tell"
    assert detail(verdict, "same_plan_and_release") == "part 2 (3 workers): worker2 left no records"


def test_the_policy_excuses_a_worker_that_was_lost_in_an_earlier_part(resized: Path) -> None:
    lose(resized, "worker2")
    plan = json.loads((resized / "plan.json").read_text())
    well = {"alive": False, "failed": False, "exit_code": 0, "ended_by": "psfleet"}
    plan["earlier"][1]["endings"] = [well | {"name": name} for name in ("ps0", "worker0", "worker1")]
    write(resized, "plan.json", json.dumps(plan))
    assert verdict_of(resized).exit_code == 2
    ask_for(resized, success="chief")
    verdict = verdict_of(resized)
    assert verdict.verdict == "proven", verdict.failing
    assert [part["workers"] for part in verdict.figures["parts"]] == [2, 2, 2]


def test_a_worker_of_an_earlier_part_that_had_its_own_ps_is_found(resized: Path) -> None:
    edit(resized, "worker2", "peers_ready", ps_nonces={"ps0": 7, "ps1": 7})
    found = detail(verdict_of(resized), "same_parameter_servers")
    others = [f"worker2 met another {ps} than the chief" for ps in ("ps0", "ps1")]
    assert found == f"part 2 (3 workers): {'; '.join(others)}"


def test_the_counts_of_each_part_must_add_up(resized: Path) -> None:
    every = records(resized, "worker0")
    changed = [number for number, record in enumerate(every) if record["event"] == "restored"]
    counts = every[changed[0]]["contributions"]
    every[changed[0]]["contributions"] = counts | {"worker0": counts["worker0"] + 7}
    rewrite(resized, "worker0", every)
    found = detail(verdict_of(resized), "contributions_add_up")
    assert "part 1 (2 workers): " in found
    assert "part 2 (3 workers): " in found

    for number in changed:
        every[number].pop("contributions", None)
    rewrite(resized, "worker0", every)
    assert "contributions_add_up" in checks(verdict_of(resized), None)


def test_recorded_steps_of_a_part_that_the_ps_did_not_count_are_found(resized: Path) -> None:
    """The restore at the beginning of the part undid none of its steps."""
    counts = records(resized, "worker0")[-1]["contributions"]
    changed = {"worker0": counts["worker0"] + 7, "worker1": counts["worker1"] - 7}
    every = records(resized, "worker0")
    rewrite(resized, "worker0", [*every[:-1], every[-1] | {"contributions": changed}])
    found = detail(verdict_of(resized), "contributions_add_up")
    assert found.startswith("part 3 (2 workers): ")
    assert "worker1: the chief counted" in found


def test_steps_after_the_checkpoint_that_the_next_part_restored_do_not_count(resized: Path) -> None:
    """The chief of the first part failed five steps after its last save."""
    every = records(resized, "worker0")
    end = next(number for number, record in enumerate(every) if record["event"] == "finished")
    last = next(record for record in reversed(every[:end]) if record["event"] == "step")
    step = every[end]["global_step"]
    more = {"steps": 5, "local_step": last["local_step"] + 5}
    beyond = last | more | {"global_step_before": step, "global_step_after": step + 5}
    failed = {name: every[end][name] for name in every[0] if name in every[end]} | {"v": 1}
    failed |= {"event": "failed", "class": "cluster", "reason": "ps0 was lost"}
    rewrite(resized, "worker0", [*every[:end], beyond, failed, *every[end + 1 :]])
    verdict = verdict_of(resized)
    assert verdict.verdict == "proven", verdict.failing
    assert verdict.figures["parts"][0]["last_step"] == step


def test_a_worker_without_steps_in_a_part_is_found(resized: Path) -> None:
    """Its share of the whole run would be enough; its share of the part is not."""
    every = records(resized, "worker1")
    second = json.loads((resized / "plan.json").read_text())["earlier"][1]["plan"]["hash"]
    kept = [record for record in every if record["event"] != "step" or record["plan_hash"] != second]
    rewrite(resized, "worker1", kept)
    assert "part 2 (3 workers): worker1 recorded no step" in detail(verdict_of(resized), "workers_overlap")


@pytest.mark.parametrize("earlier", [3, [3], [{"plan": {}}], [{"plan": {"version": 1}}]])
def test_a_damaged_plan_of_an_earlier_part_is_not_judged(resized: Path, earlier: object) -> None:
    plan = json.loads((resized / "plan.json").read_text())
    write(resized, "plan.json", json.dumps(plan | {"earlier": earlier}))
    assert verdict_of(resized).exit_code == 2
    assert "plan.json" in read_run(resized).problem
