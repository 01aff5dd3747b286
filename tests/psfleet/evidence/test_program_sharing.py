"""What psfleet saw of a program: which variables its workers trained, and where these were."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.psfleet.evidence.cases import Case, cases, do
from tests.psfleet.evidence.folder_damages import set_losses
from tests.psfleet.evidence.program_folders import end
from tests.psfleet.evidence.run_folders import (
    begin_with,
    checks,
    drop,
    edit,
    leave_out,
    lose,
    meet_again,
    records,
    rewrite,
    verdict_of,
)
from tests.trainer.program.launched import RUN_ID
from trainer.contract.plan import ClusterPlan, PlannedTask


@pytest.fixture
def observed(trained: Callable[[str], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained("tutorial"), tmp_path / RUN_ID))


def train_nothing(run: Path, windows: slice) -> None:
    """Let these windows of worker 1 have changed no variable."""
    every = records(run, "worker1")
    for record in [record for record in every if record["event"] == "step"][windows]:
        record["trained"] = 0
    rewrite(run, "worker1", every)


def see_no_more(run: Path, task: str, reason: str) -> None:
    """Let the observer have recorded why it does not see all that a task trains."""
    every = records(run, task)
    place = next(number for number, record in enumerate(every) if record["event"] == "trained")
    seen = {name: value for name, value in every[place].items() if name != "variables"}
    rewrite(run, task, [*every[:place], seen | {"event": "unseen", "reason": reason}, *every[place:]])


PARAMETERS_SHARED = {
    "other variables": Case(
        do(edit, "worker1", "peers_ready", variables={"ps0 weights_1": 24, "ps0 bias_1": 8}),
        1,
        "worker1 trained other variables than worker0, or elsewhere: ps0 (32 bytes), not ps0 (32 bytes)",
    ),
    "variables of one's own in the end": Case(
        do(meet_again, "worker1", variables={"ps0 weights": 24, "worker1 head": 40}),
        0,
        "all that worker1 trains is shared: other workers do not train worker1 head (40 bytes)",
        headline="COMPLETED: the program ended well on 3 tasks; it is not shown that all that worker1 "
        "trains is shared",
    ),
    "a variable of one's own that no step counts": Case(
        do(edit, "worker1", "trained", variables={"ps0 weights": 24, "ps0 bias": 8, "worker1 head": 40}),
        0,
        "all that worker1 trains is shared: other workers do not train worker1 head (40 bytes)",
    ),
    "training that nobody saw": Case(
        do(see_no_more, "worker1", "it also computes gradients outside of sessions"),
        0,
        "all training of worker1 was seen: it also computes gradients outside of sessions",
    ),
    "steps that trained nothing at the end": Case(
        do(train_nothing, slice(-30, None)),
        0,
        "each step of worker1 trained the model: only ",
        headline="COMPLETED: the program ended well on 3 tasks; it is not shown that each step of "
        "worker1 trained the model",
    ),
    "steps that trained nothing at the beginning": Case(
        do(train_nothing, slice(90)), 0, "each step of worker1 trained the model: only "
    ),
    "all tasks use variables that are on one worker": Case(
        do(edit, "worker0 worker1", "peers_ready", variables={"worker0 weights": 24}),
        0,
        headline="PROVEN: by what psfleet saw of the program 2 workers trained one model together "
        "through 1 ps, and it learned",
    ),
    "no variables": Case(
        (do(drop, "worker1", "trained"), do(edit, "worker1", "peers_ready", variables={})),
        0,
        "all that worker1 trains is shared: no variable of its model is known",
    ),
    "a global step of one's own": Case(
        do(edit, "worker1", "peers_ready", counters={"worker1 global_step": 8}),
        1,
        "worker1 has a global step of its own, worker1 global_step",
    ),
    "a second global step of one's own": Case(
        do(meet_again, "worker1", counters={"worker1 step": 8}),
        0,
        "worker1 counts its steps as the others do: it also moves worker1 step",
    ),
    "parameters that nobody knows the place of": Case(
        (do(drop, "worker1", "trained"), do(leave_out, "worker1", "variables")),
        2,
        "worker1 did not record where its parameters are",
    ),
    "an update in a condition": Case(
        do(edit, "worker1", "peers_ready", doubts="condition"),
        0,
        "each step of worker1 trained the model: a condition in its graph decides whether a run takes a step",
    ),
    "noise for gradients": Case(
        do(edit, "worker1", "peers_ready", doubts="gradients"),
        0,
        "each step of worker1 trained the model: as far as its graph shows, it applies "
        "something other than gradients of a loss",
    ),
    "gradients of zeros": Case(
        do(edit, "worker1", "finished", gradients_seen=9, gradients_of_zero=9),
        0,
        "the gradients of worker1 changed anything: all 9 that were checked were 0",
    ),
    "a loss of one's own that stays": Case(
        do(edit, "worker1", "step", loss=0.7, loss_mean=0.7),
        0,
        "worker1 trained the model that learned: its own loss went from 0.7 to 0.7",
        headline="COMPLETED: the program ended well on 3 tasks; it is not shown that worker1 trained "
        "the model that learned",
    ),
}
WORKERS_TRAINED = {
    # The global step moved by its steps, too.
    "a worker without records": Case(
        do(lose, "worker1"),
        2,
        "worker1 took no step that psfleet saw, and computed for no other: the others ",
    ),
}


@cases("tutorial", parameters_shared=PARAMETERS_SHARED, workers_trained=WORKERS_TRAINED)
def test_each_contradiction_or_gap_is_named(copy_of: Callable[[str], Path], case: Case) -> None:
    case.hold(copy_of(case.kind))


def test_the_contributions_that_a_coordinator_recorded_are_judged(observed: Path) -> None:
    """A coordinator hands out all steps; its workers and ps have no records."""
    for task in ("worker1", "ps0"):
        (observed / "events" / f"{task}.jsonl").unlink()

    def end_with(**contributions: int) -> None:
        every = records(observed, "worker0")
        told = [record for record in every if record["event"] in {"started", "step"}]
        rewrite(observed, "worker0", [*told, every[-1] | {"contributions": contributions}])

    end_with(worker0=390, worker1=410)
    verdict = verdict_of(observed)
    assert verdict.verdict == "proven", verdict.failing
    assert json.loads(json.dumps(verdict.as_json()))["figures"]
    end(observed, "worker1", exit_code=143)
    assert "worker1 had done its work" not in "".join(verdict_of(observed).not_shown)
    end_with(worker0=799, worker1=1)
    assert checks(verdict_of(observed), False) == {"fair_shares"}
    # Its functions change no variable of the model, as if it trained alone.
    end_with(worker0=0, worker1=0)
    verdict = verdict_of(observed)
    assert verdict.verdict == "completed", verdict.failing
    assert "no function that the coordinator gave them is seen to change" in verdict.not_shown[0]


def test_shares_are_the_same_in_checks_and_in_figures(observed: Path) -> None:
    """A coordinator has recorded all steps as its own, and takes none."""
    tasks = ClusterPlan.from_json(json.loads((observed / "plan.json").read_text())).tasks
    plan = ClusterPlan("test", (*tasks, PlannedTask("chief", 0, "host9", "127.0.0.1", 1)))
    (observed / "plan.json").write_text(json.dumps(plan.to_json()))
    chief = {"job": "chief", "index": 0, "task": "chief0"}
    by_chief = [record | chief for record in records(observed, "worker0")]
    by_chief[-1]["contributions"] = {"worker0": 390, "worker1": 410}
    rewrite(observed, "chief0", by_chief)
    for task in ("worker0", "worker1", "ps0"):
        (observed / "events" / f"{task}.jsonl").unlink()
    verdict = verdict_of(observed)
    (fair,) = (check for check in verdict.checks if check.check == "fair_shares")
    workers = json.loads(json.dumps(verdict.as_json()))["figures"]["workers"]
    shares = {name: of["share"] for name, of in workers.items()}
    assert fair.evidence["shares"] == {"worker0": 0.4875, "worker1": 0.5125}
    assert shares == fair.evidence["shares"]


def test_only_workers_whose_gradients_cannot_all_have_been_late_count_as_sharing(
    trained: Callable[[str], Path], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(trained("tutorial_synchronous"), tmp_path / RUN_ID))
    begin_with(run, "worker0 worker1", replicas_to_aggregate=1)
    verdict = verdict_of(run)
    assert verdict.verdict == "completed", verdict.failing
    steps = {
        name: [record for record in records(run, name) if record["event"] == "step"]
        for name in ("worker0", "worker1")
    }
    before = min(own[0]["global_step_before"] for own in steps.values())
    moved = max(own[-1]["global_step_after"] for own in steps.values()) - before
    told = "\n".join(verdict.not_shown)
    named = {name for name in steps if f"gradients of {name} counted: it computed" in told}
    # Which worker took more steps depends on the scheduler; it may have made all steps that counted.
    assert named == {
        name
        for name, other in (("worker0", "worker1"), ("worker1", "worker0"))
        if steps[other][-1]["local_step"] >= moved
    }


def test_a_reached_goal_proves_learning_whatever_the_losses(observed: Path) -> None:
    changed = records(observed, "worker0")
    found = {"event": "evaluated", "global_step": 10_000, "metrics": {"score": 9.0}}
    rewrite(observed, "worker0", [*changed[:-1], changed[-1] | found, changed[-1]])
    set_losses(observed, float)
    assert checks(verdict_of(observed), False) == {"loss_fell"}
    assert verdict_of(observed, goals={"score": {"minimum": 8}}).verdict == "proven"
    assert verdict_of(observed, goals={"score": {"minimum": 10}}).verdict == "not proven"
