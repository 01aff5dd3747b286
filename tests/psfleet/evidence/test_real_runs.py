"""The verdict on whole runs of real tasks: of each replication, resumed, split, and of programs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.psfleet.evidence.adversaries.real_runs import CAME_BACK
from tests.psfleet.evidence.cases import checks_named
from tests.psfleet.evidence.replications import ASYNC_ON_SERVERS, IN_GRAPH, KINDS, LOCAL, STEPS, SYNC
from tests.psfleet.evidence.run_folders import (
    UNSHARED,
    checks,
    detail,
    records,
    steps_and_others,
    train,
    verdict_of,
)

SEEN = checks_named(
    "tasks_ended_well tasks_exchanged records_complete same_plan_and_release same_parameter_servers "
    "workers_met parameters_shared fair_shares workers_overlap loss_finite loss_fell"
)
GOALS = {"weight": {"minimum": 1.8, "maximum": 2.2}, "bias": {"minimum": 9.8}}
WITH_RECORDS = checks_named(
    "tasks_ended_well tasks_exchanged records_complete same_plan_and_release fair_shares "
    "workers_overlap steps_interleave steps_numbered loss_finite loss_fell"
)
HEADLINES = {
    SYNC: "PROVEN: 3 workers trained one model together, 2 gradients to a step, through 2 ps, and it"
    " converged",
    IN_GRAPH: "PROVEN: one client trained one model on 3 workers together through 1 ps, and it converged",
    ASYNC_ON_SERVERS: "PROVEN: 2 workers trained one model together through 1 ps, and it converged",
    LOCAL: "PROVEN: one process trained the model by itself, without ps, and it converged",
}
CONTRIBUTIONS = {SYNC: 2 * STEPS, IN_GRAPH: 3 * STEPS, LOCAL: STEPS}
SHARING = {*UNSHARED, "fingerprints_agree"}


def test_a_healthy_run_is_proven(healthy: Path) -> None:
    verdict = verdict_of(healthy)
    assert checks(verdict, False, None) == set(), verdict.failing
    assert (verdict.verdict, verdict.exit_code) == ("proven", 0)
    assert verdict.headline == "PROVEN: 2 workers trained one model together through 1 ps, and it converged"
    # One worker may take the last step while the other is amid a call of four.
    assert 400 <= verdict.figures["global_steps"] <= 404
    assert sum(worker["steps"] for worker in verdict.figures["workers"].values()) >= 400
    assert abs(verdict.figures["metrics"]["weight"] - 2) < 0.2
    assert verdict.figures["examples_per_second"] > 0


def test_workers_with_separate_ps_are_not_proven_although_both_converged(split_brain: Path) -> None:
    verdict = verdict_of(split_brain)
    assert verdict.exit_code == 1
    assert checks(verdict, False) == SHARING
    assert checks(verdict, None) == set()
    assert verdict.headline.startswith("NOT PROVEN: nothing shows that 2 workers trained one model together")
    assert "worker1 met another ps0 than the chief" in detail(verdict, "same_parameter_servers")
    assert "worker0 and worker1 did not meet" in detail(verdict, "workers_met")
    assert "worker1 moved the global step alone" in detail(verdict, "steps_interleave")


def test_a_suspended_worker_has_no_fair_share(asleep: Path) -> None:
    verdict = verdict_of(asleep)
    assert checks(verdict, False) == {"fair_shares"}
    assert checks(verdict, None) == set()
    assert "worker1 applied" in detail(verdict, "fair_shares")
    assert "expected at least 10.0%" in detail(verdict, "fair_shares")
    assert verdict_of(asleep, minimum_share=0.001).exit_code == 0


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.chaos), 2])
def test_a_run_that_pulls_ahead_is_proven_and_does_not_count_own_steps_as_staleness(
    tmp_path: Path, workers: int
) -> None:
    run = train(tmp_path, workers, ["--model=linear", "--steps=1000", "--pull_ahead=true"])
    verdict = verdict_of(run)
    assert verdict.verdict == "proven", verdict.failing
    for number in range(workers):
        windows = steps_and_others(run, f"worker{number}")[0]
        behind = sum(window.get("own_steps_behind", 0) for window in windows)
        assert 0 < behind < sum(window["steps"] for window in windows)
        if workers == 1:
            assert {window["staleness_max"] for window in windows} == {0}
            moved = [window["global_step_after"] - window["global_step_before"] for window in windows]
            assert moved == [window["steps"] for window in windows]


def test_a_run_with_damped_steps_is_proven(tmp_path: Path) -> None:
    flags = ["--model=mnist_mlp", "--optimizer=adam", "--staleness=damped", "--steps=600"]
    verdict = verdict_of(train(tmp_path, 2, flags, ps=2))
    assert verdict.verdict == "proven", verdict.failing


@pytest.mark.chaos
def test_a_synchronous_run_with_tables_is_proven(tmp_path: Path) -> None:
    flags = ["--model=wide_deep", "--replication=sync", "--batch_size=256", "--steps=200"]
    verdict = verdict_of(train(tmp_path, 2, flags, ps=2))
    assert verdict.verdict == "proven", verdict.failing


@pytest.mark.parametrize(
    ("flags", "behind"),
    [
        (("--pull_every=8", "--wire_dtype=bfloat16"), True),
        pytest.param(("--replication=sync",), False, marks=pytest.mark.chaos),
        pytest.param(("--replication=in_graph",), False, marks=pytest.mark.chaos),
    ],
)
def test_a_run_with_several_batches_to_a_push_is_proven_and_counts_pushes(
    tmp_path: Path, flags: tuple[str, ...], *, behind: bool
) -> None:
    usual = ("--model=linear", "--steps=600", "--learning_rate=0.02", "--push_every=4")
    run = train(tmp_path, 2, [*usual, *flags])
    verdict = verdict_of(run)
    assert verdict.verdict == "proven", verdict.failing
    assert verdict.figures["batches_in_a_step"] == 4
    gradients = 2 if "async" not in verdict.figures["replication"] else 1
    steps = sum(worker["steps"] for worker in verdict.figures["workers"].values())
    assert steps == gradients * verdict.figures["global_steps"]
    assert verdict.figures["examples"] == steps * 4 * 100
    assert (verdict.figures["staleness"]["own_steps_behind"] > 0) == behind


@pytest.mark.parametrize("kind", KINDS)
def test_a_real_run_is_proven(trained: Callable[[str], Path], kind: str) -> None:
    verdict = verdict_of(trained(kind))
    assert checks(verdict, False, None) == set(), verdict.failing
    assert verdict.headline == HEADLINES[kind]
    assert ("servers_met" in checks(verdict, True)) == (kind in {IN_GRAPH, ASYNC_ON_SERVERS})
    if kind in CONTRIBUTIONS:
        assert f"= {CONTRIBUTIONS[kind]}" in detail(verdict, "contributions_add_up")
    clients = f"{KINDS[kind][2]} clients" if kind in {SYNC, ASYNC_ON_SERVERS} else "1 client"
    assert detail(verdict, "fingerprints_agree").startswith(f"{clients} and the last checkpoint hold ")
    if kind == IN_GRAPH:
        assert "the client of all 3 workers met" in detail(verdict, "same_parameter_servers")


def test_the_checks_of_a_local_run_state_that_nothing_is_shared(trained: Callable[[str], Path]) -> None:
    verdict = verdict_of(trained(LOCAL))
    for name in (*UNSHARED - {"contributions_add_up"}, "workers_overlap"):
        assert "nothing is shared" in detail(verdict, name)
    assert "of 1 task" in detail(verdict, "records_complete")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind == "in_graph_client_came_back" else [pytest.mark.chaos])
        for kind in CAME_BACK
    ],
)
def test_a_run_with_a_killed_and_restarted_task_is_proven(trained: Callable[[str], Path], kind: str) -> None:
    """The records and counts of real restarted tasks must be accepted."""
    verdict = verdict_of(trained(kind))
    assert checks(verdict, False, None) == set(), verdict.failing
    assert f"started again: {CAME_BACK[kind][1]} 1 time" in detail(verdict, "ended_well")


@pytest.mark.chaos
def test_a_run_whose_ps_restored_alone_is_proven_and_says_so(trained: Callable[[str], Path]) -> None:
    run = trained("tables_ps_alone")
    verdict = verdict_of(run)
    assert checks(verdict, False, None) == set(), verdict.failing
    restored = next(record for record in records(run, "worker0") if record["event"] == "ps_restored")
    words = f"ps1 restored its part of global step {restored['checkpoint_step']} alone at 201"
    assert verdict.headline.endswith(f"and it converged; {words}")
    assert detail(verdict, "no_restart_from_zero") == f"initialised once; {words}"
    faults = verdict.figures["faults"]
    assert (faults["steps_lost"], faults["restores"]) == (0, [])
    lost = 201 - restored["checkpoint_step"]
    assert [(its["task"], its["steps_lost"]) for its in faults["ps_restores"]] == [("ps1", lost)]
    assert 0 < lost <= 201


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
