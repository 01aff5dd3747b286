"""Real runs of each replication are proven by the records that this replication must leave."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from psfleet.evidence.recorded_run import Run
from psfleet.evidence.replication_rules import ReplicationRules
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.sharing import fair_shares
from tests.psfleet.evidence.replications import ASYNC_ON_SERVERS, IN_GRAPH, KINDS, LOCAL, STEPS, SYNC, count
from tests.psfleet.evidence.run_folders import (
    begin_with,
    checks,
    detail,
    edit,
    rewrite,
    steps_and_others,
    tell_settings,
    verdict_of,
)
from tests.psfleet.evidence.simulated_runs import Worker, run_of

HEADLINES = {
    SYNC: "PROVEN: 3 workers trained one model together, 2 gradients to a step, through 2 ps, and it"
    " converged",
    IN_GRAPH: "PROVEN: one client trained one model on 3 workers together through 1 ps, and it converged",
    ASYNC_ON_SERVERS: "PROVEN: 2 workers trained one model together through 1 ps, and it converged",
    LOCAL: "PROVEN: one process trained the model by itself, without ps, and it converged",
}
CONTRIBUTIONS = {SYNC: 2 * STEPS, IN_GRAPH: 3 * STEPS, LOCAL: STEPS}


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
    for name in (
        "same_parameter_servers",
        "workers_met",
        "fair_shares",
        "workers_overlap",
        "steps_interleave",
        "steps_accounted",
    ):
        assert "nothing is shared" in detail(verdict, name)
    assert "of 1 task" in detail(verdict, "records_complete")


def test_a_slow_backup_needs_no_share(copy_of: Callable[[str], Path]) -> None:
    run = copy_of(SYNC)
    count(run, worker0=STEPS, worker1=STEPS, worker2=0)
    verdict = verdict_of(run)
    assert "fair_shares" in checks(verdict, True)
    assert "(worker2 as backup)" in detail(verdict, "fair_shares")


def take_one_gradient_to_a_step(run: Path) -> None:
    """Let every worker offer a gradient in each step, which aggregates only one."""
    tell_settings(run, replicas_to_aggregate=1)
    whole = {"local_step": STEPS, "steps": STEPS, "global_step_before": 0, "global_step_after": STEPS}
    for worker in ("worker0", "worker1", "worker2"):
        (step, *_), (*others, last) = steps_and_others(run, worker)
        rewrite(run, worker, [*others, step | whole, last | {"local_step": STEPS}])
        begin_with(run, worker, replicas_to_aggregate=1)


def test_with_one_gradient_in_a_step_two_workers_must_still_contribute(
    copy_of: Callable[[str], Path],
) -> None:
    run = copy_of(SYNC)
    take_one_gradient_to_a_step(run)
    count(run, worker0=STEPS // 2, worker1=STEPS // 2, worker2=0)
    sharing = {"contributions_add_up", "fair_shares", "workers_overlap", "steps_interleave"}
    assert sharing <= checks(verdict_of(run), True)
    count(run, worker0=STEPS, worker1=0, worker2=0)
    verdict = verdict_of(run)
    assert checks(verdict, False) >= {"fair_shares", "steps_interleave"}
    assert "worker0 moved the global step alone" in detail(verdict, "steps_interleave")


@pytest.mark.parametrize(
    ("training", "said"),
    [
        (
            {"replication": "ring"},
            "settings.json: replication is 'ring'; expected one of async, sync, in_graph, local",
        ),
        ({"replicas_to_aggregate": 9}, "replicas_to_aggregate is 9; expected an integer from 1 to 3"),
        ({"existing_servers": "perhaps"}, "existing_servers is 'perhaps'; expected true or false"),
    ],
)
def test_invalid_settings_of_the_replication_leave_everything_open(
    copy_of: Callable[[str], Path], training: dict[str, object], said: str
) -> None:
    run = copy_of(SYNC)
    tell_settings(run, **training)
    verdict = verdict_of(run)
    assert verdict.exit_code == 2
    assert checks(verdict, True, False) == set()
    assert said in detail(verdict, "workers_met")


def test_without_settings_the_replication_is_read_from_the_chiefs_records(
    copy_of: Callable[[str], Path],
) -> None:
    run = copy_of(SYNC)
    (run / "settings.json").unlink()
    assert verdict_of(run).headline == HEADLINES[SYNC]


def test_a_run_without_a_recorded_replication_is_judged_as_asynchronous(run: Path) -> None:
    tell_settings(run)
    (run / "settings.json").write_text('{"training": {"model": "linear"}, "tasks": {}}')
    edit(run, "worker0 worker1", "started", settings={"model": "linear"})
    assert verdict_of(run).exit_code == 0


def with_a_backup(*steps: tuple[int, int]) -> Run:
    """A run of 300 steps of two gradients, to which the third worker offers these, read before and after."""
    workers = [Worker(index, random.Random(index)) for index in range(3)]
    for worker in workers:
        worker.start(0)
    workers[0].write("initialised", global_step=0)
    for worker in workers[:2]:
        for step in range(300):
            worker.count(step, step + 1)
    for before, after in steps:
        workers[2].count(before, after)
        workers[2].flush()
    for worker in workers:
        worker.finish(global_step=300, contributions={"worker0": 300, "worker1": 299, "worker2": 1})
    return run_of(workers, ReplicationRules("sync", 3, 2))


@pytest.mark.parametrize("every", [1, 7, 60, 140])
def test_a_backup_may_be_slow(every: int) -> None:
    run = with_a_backup(*((step, step + every) for step in range(0, 301 - every, every)))
    check = fair_shares(run, EvidenceSettings())
    assert check.ok, check.detail


@pytest.mark.parametrize(
    "steps",
    [[(0, 1), (1, 300)], [(0, 1), (1, 2), (2, 3), (3, 290), (290, 291)], [(0, 1), (299, 300)]],
)
def test_a_backup_without_steps_for_most_of_the_run_fails_the_check(steps: list[tuple[int, int]]) -> None:
    check = fair_shares(with_a_backup(*steps), EvidenceSettings())
    assert check.ok is False
    assert "worker2, a backup, made no step during 9" in check.detail
