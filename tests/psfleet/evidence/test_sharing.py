"""Whether workers shared one model: whom they met, and their parts in the steps."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from psfleet.evidence.recorded_run import Run
from psfleet.evidence.replication_rules import ReplicationRules
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.sharing import fair_shares
from tests.psfleet.evidence.cases import ANY, Case, cases, do
from tests.psfleet.evidence.folder_damages import take_no_step
from tests.psfleet.evidence.replications import STEPS, SYNC, count
from tests.psfleet.evidence.run_folders import (
    begin_with,
    checks,
    detail,
    drop,
    edit,
    events,
    leave_out,
    meet_again,
    records,
    rewrite,
    steps_and_others,
    tell_settings,
    verdict_of,
)
from tests.psfleet.evidence.simulated_runs import Worker, run_of


def take_one_gradient_to_a_step(run: Path) -> None:
    """Let every worker offer a gradient in each step, which aggregates only one."""
    tell_settings(run, replicas_to_aggregate=1)
    whole = {"local_step": STEPS, "steps": STEPS, "global_step_before": 0, "global_step_after": STEPS}
    for worker in ("worker0", "worker1", "worker2"):
        (step, *_), (*others, last) = steps_and_others(run, worker)
        rewrite(run, worker, [*others, step | whole, last | {"local_step": STEPS}])
        begin_with(run, worker, replicas_to_aggregate=1)


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


def join_at_the_very_end(run: Path) -> None:
    """Everything that worker 1 does happens in the last steps; all the rest is consistent."""
    (*_, last, last_of_all), (*start, end) = steps_and_others(run, "worker1")
    done = last["steps"] + last_of_all["steps"]
    steps = [last | {"local_step": last["steps"]}, last_of_all | {"local_step": done}]
    rewrite(run, "worker1", [*start, *steps, end | {"local_step": done}])
    count(run, worker0=records(run, "worker0")[-1]["global_step"] - done, worker1=done)


SAME_PARAMETER_SERVERS = {
    "no word of whom the chief met": Case(
        do(drop, "worker0", "peers_ready"), 2, "the chief did not record which ps it met"
    ),
    "another ps met later": Case(
        do(meet_again, "worker1", ps_nonces={"ps0": 7}), 1, "worker1 met another ps0 than the chief"
    ),
    "a ps that was never met": Case(
        do(edit, "worker1", "peers_ready", ps_nonces={}), 1, "worker1 never met ps0"
    ),
    "a ps of another run": Case(
        do(edit, "ps0", "started", nonce=7), 1, "worker0 met a ps0 whose nonce is not in the records of ps0"
    ),
    "a ps beside a local worker": Case(
        do(edit, "worker0", "peers_ready", ps_nonces={"ps0": 7}),
        1,
        "worker0 met ps0, which is no ps",
        kind="local",
    ),
    # Its file may lack something.
    "a ps of another run, which a playbook ended": Case(
        do(edit, "ps0", "started", nonce=5), 2, "met a ps0 whose nonce is not in the", kind="tutorial"
    ),
}
WORKERS_MET = {
    "another worker met later": Case(
        do(meet_again, "worker0", worker_nonces={"worker1": 7}), 1, "worker0 met a worker1 whose nonce is not"
    ),
    "a client that met another worker": Case(
        do(edit, "worker2", "started", nonce=7),
        1,
        "worker0 met a worker2 whose nonce is not",
        kind="in_graph",
    ),
    "a client that met nobody": Case(
        do(edit, "worker0", "peers_ready", worker_nonces={}),
        1,
        "worker0 and worker2 did not meet",
        kind="in_graph",
    ),
}
SERVERS_MET = {
    "another server": Case(
        do(edit, "server0", "started", nonce=7), 1, "worker0 used a server that is not server0"
    ),
    "another server later": Case(
        do(meet_again, "worker1", server_nonce=7), 1, "worker1 used a server that is not server1"
    ),
    "no word of the server": Case(
        do(leave_out, "worker0", "server_nonce"), 2, "worker0 did not record which server"
    ),
}
FAIR_SHARES = {
    "a worker that joins at the very end": Case(join_at_the_very_end, 1, "worker1 applied ", ANY),
    "a slow backup": Case(
        do(count, worker0=STEPS, worker1=STEPS, worker2=0), 1, "(worker2 as backup)", ANY, kind="sync"
    ),
    "two idle workers, where one backup may do nothing": Case(
        do(count, worker0=598, worker1=1, worker2=1),
        1,
        "of all workers but 1",
        failing="contributions_add_up fair_shares",
        kind="sync",
    ),
    "a backup that computed nothing": Case(
        (do(take_no_step, "worker2"), do(count, worker0=300, worker1=300, worker2=0)),
        1,
        "worker2 computed no gradient",
        failing=ANY,
        kind="sync",
    ),
}


WORKERS_OVERLAP = {
    "a worker that joins at the very end": Case(join_at_the_very_end, 1, "expected at least 50.0%", ANY),
}


@cases(
    same_parameter_servers=SAME_PARAMETER_SERVERS,
    workers_met=WORKERS_MET,
    fair_shares=FAIR_SHARES,
    workers_overlap=WORKERS_OVERLAP,
)
def test_each_contradiction_or_gap_is_named(copy_of: Callable[[str], Path], case: Case) -> None:
    case.hold(copy_of(case.kind))


@cases("async_on_servers", servers_met=SERVERS_MET)
def test_another_server_than_a_client_s_own_is_named(copy_of: Callable[[str], Path], case: Case) -> None:
    case.hold(copy_of(case.kind))


def test_workers_that_each_trained_alone_are_not_synchronous(
    split_brain: Path, copy_of: Callable[[str], Path]
) -> None:
    """The records of two clusters of one worker claim to be one synchronous cluster."""
    run = Path(shutil.copytree(split_brain, copy_of(SYNC).parent / "split"))
    tell_settings(run, replication="sync")
    begin_with(run, "worker0 worker1", replication="sync", replicas_to_aggregate=2)
    assert {"same_parameter_servers", "workers_met", "contributions_add_up"} <= checks(verdict_of(run), False)


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
