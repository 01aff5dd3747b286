"""Runs of each replication with contradicting records: the intended check finds each."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.psfleet.evidence.cases import Case, Expected, cases
from tests.psfleet.evidence.folder_damages import take_no_step
from tests.psfleet.evidence.replications import STEPS, SYNC, count
from tests.psfleet.evidence.run_folders import (
    begin_with,
    checks,
    drop,
    edit,
    events,
    fail,
    leave_out,
    lose,
    meet_again,
    rewrite,
    steps_and_others,
    tell_settings,
    verdict_of,
)


def be_in_each_step_twice(run: Path) -> None:
    """The sum is right, but worker 0 would have been both gradients of each step."""
    (step, *_), others = steps_and_others(run, "worker0")
    whole = {"local_step": 2 * STEPS, "steps": 2 * STEPS, "global_step_before": 0, "global_step_after": STEPS}
    rewrite(run, "worker0", [*others[:-1], step | whole, others[-1] | {"local_step": 2 * STEPS}])
    count(run, worker0=2 * STEPS, worker1=0, worker2=0)


def put_another_beside_it(run: Path) -> None:
    shutil.copy(events(run, "worker0"), events(run, "worker1"))
    edit(run, "worker1", "", index=1)


# Runs of each replication whose records contradict it. Steps are 300, two gradients to each in `sync`.
CASES = {
    "settings that ask for async": Case(
        partial(tell_settings, replication="async", replicas_to_aggregate=None),
        Expected(1, said="worker0 trained sync, 2 of 3"),
        "sync",
    ),
    # Whether late gradients make up for those that lack in each step is chance.
    "settings that ask for all replicas": Case(
        partial(tell_settings, replicas_to_aggregate=3), Expected(1, said="300 global steps of 3"), "sync"
    ),
    "a worker that was told otherwise": Case(
        partial(begin_with, tasks="worker1", replication="async"),
        Expected(1, "same_settings", "worker1 trained async, the run is sync"),
        "sync",
    ),
    "a worker that trained another model": Case(
        partial(begin_with, tasks="worker1", model="linear"),
        Expected(1, "same_settings", "worker1 trained linear, the run's"),
        "sync",
    ),
    "a worker that tells no settings": Case(
        partial(drop, tasks="worker1", event="started"),
        Expected(2, said="worker1 did not record its settings"),
        "sync",
    ),
    "steps of a stranger": Case(
        partial(count, worker9=0),
        Expected(1, "contributions_add_up", "steps of worker9, which is no"),
        "sync",
    ),
    "counts of asynchronous steps where everything else says sync": Case(
        partial(count, worker0=100, worker1=100, worker2=100),
        Expected(1, "contributions_add_up", "300 global steps of 2 gradients are 600"),
        "sync",
    ),
    "one worker in a step twice": Case(
        be_in_each_step_twice,
        Expected(
            1,
            "contributions_add_up fair_shares steps_interleave",
            "600 gradients in 300 global steps, and each step takes one",
        ),
        "sync",
    ),
    "two idle workers, where one backup may do nothing": Case(
        partial(count, worker0=598, worker1=1, worker2=1),
        Expected(1, "contributions_add_up fair_shares", "of all workers but 1"),
        "sync",
    ),
    "a backup that computed nothing": Case(
        (partial(take_no_step, tasks="worker2"), partial(count, worker0=300, worker1=300, worker2=0)),
        Expected(1, said="worker2 computed no gradient"),
        "sync",
    ),
    "no records of a worker": Case(
        partial(lose, task="worker1"), Expected(2, said="worker1.jsonl: No such file"), "sync"
    ),
    "a tower that was never computed": Case(
        partial(take_no_step, tasks="worker2"),
        Expected(
            1,
            "contributions_add_up workers_overlap steps_interleave steps_accounted",
            "worker2: the chief counted 300 of its steps, its own records show 0",
        ),
        "in_graph",
    ),
    "a tower that was computed too often": Case(
        partial(count, worker0=290, worker1=310),
        Expected(1, "contributions_add_up", "worker1: 310 gradients in 300"),
        "in_graph",
    ),
    "a tower less": Case(
        partial(count, worker2=299),
        Expected(1, "contributions_add_up", "300 global steps of 3 gradients"),
        "in_graph",
    ),
    "a client that met another worker": Case(
        partial(edit, tasks="worker2", event="started", nonce=12345),
        Expected(1, "workers_met", "worker0 met a worker2 whose nonce is not"),
        "in_graph",
    ),
    "a client that met nobody": Case(
        partial(edit, tasks="worker0", event="peers_ready", worker_nonces={}),
        Expected(1, "workers_met", "worker0 and worker2 did not meet"),
        "in_graph",
    ),
    "another server of a client": Case(
        partial(edit, tasks="server0", event="started", nonce=12345),
        Expected(1, "servers_met", "worker0 used a server that is not server0"),
        "in_graph",
    ),
    "no records of a worker of one client": Case(
        partial(lose, task="worker1"), Expected(2, said="worker1.jsonl: No such file"), "in_graph"
    ),
    "no records of a server": Case(
        partial(lose, task="server0"), Expected(2, said="server0.jsonl: No such file"), "in_graph"
    ),
    "another server": Case(
        partial(edit, tasks="server0", event="started", nonce=12345),
        Expected(1, "servers_met", "worker0 used a server that is not server0"),
        "async_on_servers",
    ),
    "another server later": Case(
        partial(meet_again, task="worker1", server_nonce=12345),
        Expected(1, "servers_met", "worker1 used a server that is not server1"),
        "async_on_servers",
    ),
    "no word of the server": Case(
        partial(leave_out, tasks="worker0", fields="server_nonce"),
        Expected(2, "servers_met", "worker0 did not record which server"),
        "async_on_servers",
    ),
    "a server that failed": Case(
        partial(fail, task="server0", reason="bug"),
        Expected(1, "ended_well", "server0 failed (program): bug"),
        "async_on_servers",
    ),
    "another worker beside a local one": Case(
        put_another_beside_it, Expected(1, "records_complete", "worker1 left records, but"), "local"
    ),
    "a ps beside a local worker": Case(
        partial(edit, tasks="worker0", event="peers_ready", ps_nonces={"ps0": 7}),
        Expected(1, "same_parameter_servers", "worker0 met ps0, which is no ps of"),
        "local",
    ),
}


@cases(CASES)
def test_each_contradiction_is_found_by_its_check(copy_of: Callable[[str], Path], case: Case) -> None:
    case.hold(copy_of(case.kind))


def test_workers_that_each_trained_alone_are_not_synchronous(
    split_brain: Path, copy_of: Callable[[str], Path]
) -> None:
    """The records of two clusters of one worker claim to be one synchronous cluster."""
    run = Path(shutil.copytree(split_brain, copy_of(SYNC).parent / "split"))
    tell_settings(run, replication="sync")
    begin_with(run, "worker0 worker1", replication="sync", replicas_to_aggregate=2)
    assert {"same_parameter_servers", "workers_met", "contributions_add_up"} <= checks(verdict_of(run), False)
