"""Verdicts on programs from psfleet's observations alone: proven or contradicted."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.psfleet.evidence.cases import Case, Expected, cases
from tests.psfleet.evidence.program_folders import end
from tests.psfleet.evidence.run_folders import (
    begin_with,
    checks,
    drop,
    edit,
    lose,
    meet_again,
    records,
    rewrite,
    verdict_of,
)
from tests.trainer.program.launched import RUN_ID
from trainer.contract.plan import ClusterPlan, PlannedTask

SEEN = {
    "tasks_ended_well",
    "tasks_exchanged",
    "records_complete",
    "same_plan_and_release",
    "same_parameter_servers",
    "workers_met",
    "parameters_shared",
    "fair_shares",
    "workers_overlap",
    "loss_finite",
    "loss_fell",
}


@pytest.fixture
def observed(trained: Callable[[str], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained("tutorial"), tmp_path / RUN_ID))


@pytest.mark.parametrize("kind", ["tutorial", pytest.param("tutorial_synchronous", marks=pytest.mark.chaos)])
def test_a_program_without_any_use_of_psfleet_is_proven_by_observation(
    trained: Callable[[str], Path], kind: str
) -> None:
    verdict = verdict_of(trained(kind))
    assert verdict.headline == (
        "PROVEN: by what psfleet saw of the program 2 workers trained one model together through 1 ps, and it"
        " learned"
    ), verdict.failing
    own_order = set() if "synchronous" in kind else {"steps_interleave", "steps_numbered"}
    assert checks(verdict, True) == SEEN | own_order
    assert [what.partition(":")[0].removeprefix("It is not shown that ") for what in verdict.not_shown] == [
        "the model is good enough for anything",
        "the files are those that were collected",
    ]


def forget(run: Path, task: str, field: str) -> None:
    """Let no record of the task have a field."""
    rewrite(
        run,
        task,
        [{name: value for name, value in record.items() if name != field} for record in records(run, task)],
    )


def stay(run: Path, task: str) -> None:
    """Let the loss of a task stay that of the untrained model."""
    edit(run, task, "step", loss=0.7, loss_mean=0.7)


def train_nothing_at_the_end(run: Path, task: str, windows: int) -> None:
    """Let the last windows of a task have changed no variable."""
    every = records(run, task)
    steps = [record for record in every if record["event"] == "step"]
    for record in steps[-windows:]:
        record["trained"] = 0
    rewrite(run, task, every)


def train_nothing_at_the_beginning(run: Path, task: str, windows: int) -> None:
    every = records(run, task)
    for record in [record for record in every if record["event"] == "step"][:windows]:
        record["trained"] = 0
    rewrite(run, task, every)


def see_no_more(run: Path, task: str, reason: str) -> None:
    """Let the observer have recorded why it does not see all that a task trains."""
    every = records(run, task)
    place = next(number for number, record in enumerate(every) if record["event"] == "trained")
    seen = {name: value for name, value in every[place].items() if name != "variables"}
    rewrite(run, task, [*every[:place], seen | {"event": "unseen", "reason": reason}, *every[place:]])


# What the records of a program that psfleet looked at contradict.
CASES = {
    "another ps": Case(
        partial(edit, tasks="worker1", event="peers_ready", ps_nonces={"ps0": 5}),
        Expected(1, "same_parameter_servers", "worker1 met another ps0 than the chief"),
    ),
    # It was ended by a playbook, so its file may lack something.
    "a ps of another run": Case(
        partial(edit, tasks="ps0", event="started", nonce=5),
        Expected(2, "same_parameter_servers", "met a ps0 whose nonce is not in the records of ps0"),
    ),
    "a worker that no other met": Case(
        partial(edit, tasks="worker0 worker1", event="peers_ready", worker_nonces={}),
        Expected(1, "workers_met", "worker0 and worker1 did not meet"),
    ),
    "a worker of another run": Case(
        partial(edit, tasks="worker0", event="peers_ready", worker_nonces={"worker1": 5}),
        Expected(1, "workers_met", "worker0 met a worker1 whose nonce is not in the records of worker1"),
    ),
    "other variables": Case(
        partial(edit, tasks="worker1", event="peers_ready", variables={"ps0 weights_1": 24, "ps0 bias_1": 8}),
        Expected(
            1,
            "parameters_shared",
            "worker1 trained other variables than worker0, or elsewhere: ps0 (32 bytes), not ps0 (32 bytes)",
        ),
    ),
    "variables of one's own": Case(
        partial(edit, tasks="worker1", event="peers_ready", variables={"worker1 weights": 24}),
        Expected(
            1,
            "parameters_shared",
            "worker1 trained other variables than worker0, or elsewhere: worker1 (24 bytes), not "
            "ps0 (32 bytes)",
        ),
    ),
    "variables of one's own in the end": Case(
        partial(meet_again, task="worker1", variables={"ps0 weights": 24, "worker1 head": 40}),
        Expected(
            0,
            headline="COMPLETED: the program ended well on 3 tasks; it is not shown that all that worker1 "
            "trains is shared",
            not_shown="all that worker1 trains is shared: other workers do not train worker1 head (40 bytes)",
        ),
    ),
    "a variable of one's own that no step counts": Case(
        partial(
            edit,
            tasks="worker1",
            event="trained",
            variables={"ps0 weights": 24, "ps0 bias": 8, "worker1 head": 40},
        ),
        Expected(
            0,
            headline="COMPLETED: the program ended well on 3 tasks; it is not shown that all that worker1 "
            "trains is shared",
            not_shown="all that worker1 trains is shared: other workers do not train worker1 head (40 bytes)",
        ),
    ),
    "training that nobody saw": Case(
        partial(see_no_more, task="worker1", reason="it also computes gradients outside of sessions"),
        Expected(
            0, not_shown="all training of worker1 was seen: it also computes gradients outside of sessions"
        ),
    ),
    "steps that trained nothing at the end": Case(
        partial(train_nothing_at_the_end, task="worker1", windows=30),
        Expected(
            0,
            headline="COMPLETED: the program ended well on 3 tasks; it is not shown that each step of "
            "worker1 trained the model",
            not_shown="each step of worker1 trained the model: only ",
        ),
    ),
    "steps that trained nothing at the beginning": Case(
        partial(train_nothing_at_the_beginning, task="worker1", windows=90),
        Expected(0, not_shown="each step of worker1 trained the model: only "),
    ),
    "all tasks use variables that are on one worker": Case(
        partial(edit, tasks="worker0 worker1", event="peers_ready", variables={"worker0 weights": 24}),
        Expected(
            0,
            headline="PROVEN: by what psfleet saw of the program 2 workers trained one model together "
            "through 1 ps, and it learned",
        ),
    ),
    "no variables": Case(
        (
            partial(drop, tasks="worker1", event="trained"),
            partial(edit, tasks="worker1", event="peers_ready", variables={}),
        ),
        Expected(0, not_shown="all that worker1 trains is shared: no variable of its model is known"),
    ),
    "a global step of one's own": Case(
        partial(edit, tasks="worker1", event="peers_ready", counters={"worker1 global_step": 8}),
        Expected(1, "parameters_shared", "worker1 has a global step of its own, worker1 global_step"),
    ),
    "a second global step of one's own": Case(
        partial(meet_again, task="worker1", counters={"worker1 step": 8}),
        Expected(0, not_shown="worker1 counts its steps as the others do: it also moves worker1 step"),
    ),
    "parameters that nobody knows the place of": Case(
        (partial(drop, tasks="worker1", event="trained"), partial(forget, task="worker1", field="variables")),
        Expected(2, "parameters_shared", "worker1 did not record where its parameters are"),
    ),
    "an update in a condition": Case(
        partial(edit, tasks="worker1", event="peers_ready", doubts="condition"),
        Expected(
            0,
            headline="COMPLETED: the program ended well on 3 tasks; it is not shown that each step of "
            "worker1 trained the model",
            not_shown="each step of worker1 trained the model: a condition in its graph decides whether a "
            "run takes a step",
        ),
    ),
    "noise for gradients": Case(
        partial(edit, tasks="worker1", event="peers_ready", doubts="gradients"),
        Expected(
            0,
            not_shown="each step of worker1 trained the model: as far as its graph shows, it applies "
            "something other than gradients of a loss",
        ),
    ),
    "gradients of zeros": Case(
        partial(edit, tasks="worker1", event="finished", gradients_seen=9, gradients_of_zero=9),
        Expected(0, not_shown="the gradients of worker1 changed anything: all 9 that were checked were 0"),
    ),
    "a loss of one's own that stays": Case(
        partial(stay, task="worker1"),
        Expected(
            0,
            headline="COMPLETED: the program ended well on 3 tasks; it is not shown that worker1 trained "
            "the model that learned",
            not_shown="worker1 trained the model that learned: its own loss went from 0.7 to 0.7",
        ),
    ),
    # The global step moved by its steps, too.
    "a worker without records": Case(
        partial(lose, task="worker1"),
        Expected(
            2,
            "workers_trained",
            "worker1 took no step that psfleet saw, and computed for no other: the others recorded ",
        ),
    ),
}


@cases(CASES)
def test_each_contradiction_of_an_observed_program_is_found(observed: Path, case: Case) -> None:
    case.hold(observed)


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
    for worker in ("worker0", "worker1"):
        every = records(observed, worker)
        for number, record in enumerate(every):
            if record["event"] == "step":
                record["loss"] = record["loss_mean"] = float(number)
        rewrite(observed, worker, every)
    assert checks(verdict_of(observed), False) == {"loss_fell"}
    assert verdict_of(observed, goals={"score": {"minimum": 8}}).verdict == "proven"
    assert verdict_of(observed, goals={"score": {"minimum": 10}}).verdict == "not proven"
