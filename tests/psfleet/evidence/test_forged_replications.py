"""Runs of each replication whose records contradict it: each is found, by the check that is there for it."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.psfleet.evidence.cases import Expected
from tests.psfleet.evidence.replications import ASYNC_ON_SERVERS, IN_GRAPH, LOCAL, STEPS, SYNC, count
from tests.psfleet.evidence.run_folders import (
    checks,
    drop,
    edit,
    events,
    lose,
    meet_again,
    records,
    rewrite,
    tell_settings,
    verdict_of,
)


def a_worker_was_told_otherwise(run: Path) -> None:
    settings = records(run, "worker1")[0]["settings"]
    edit(run, "worker1", "started", settings=settings | {"replication": "async"})


def one_worker_trained_another_model(run: Path) -> None:
    settings = records(run, "worker1")[0]["settings"]
    edit(run, "worker1", "started", settings=settings | {"model": "linear"})


def counted_as_async(run: Path) -> None:
    """Everything says sync but the counts, which are those of asynchronous steps."""
    count(run, worker0=STEPS // 3, worker1=STEPS // 3, worker2=STEPS // 3)


def one_worker_in_a_step_twice(run: Path) -> None:
    """The sum is right, but worker 0 would have been both gradients of each step."""
    every = records(run, "worker0")
    step = next(record for record in every if record["event"] == "step")
    whole = {"local_step": 2 * STEPS, "steps": 2 * STEPS, "global_step_before": 0, "global_step_after": STEPS}
    others = [record for record in every if record["event"] != "step"]
    rewrite(run, "worker0", [*others[:-1], step | whole, others[-1] | {"local_step": 2 * STEPS}])
    count(run, worker0=2 * STEPS, worker1=0, worker2=0)


def two_workers_are_idle(run: Path) -> None:
    """One backup may do nothing, two may not."""
    count(run, worker0=2 * STEPS - 2, worker1=1, worker2=1)


def a_backup_computed_nothing(run: Path) -> None:
    drop(run, "worker2", "step")
    edit(run, "worker2", "finished", local_step=0)
    count(run, worker0=STEPS, worker1=STEPS, worker2=0)


def a_tower_was_never_computed(run: Path) -> None:
    drop(run, "worker2", "step")
    edit(run, "worker2", "finished", local_step=0)


def no_word_of_the_server(run: Path) -> None:
    changed = records(run, "worker0")
    for record in changed:
        record.pop("server_nonce", None)
    rewrite(run, "worker0", changed)


def a_server_that_failed(run: Path) -> None:
    failed = {"event": "failed", "class": "program", "reason": "bug"}
    every = records(run, "server0")
    rewrite(run, "server0", [*every[:-1], every[-1] | failed])


def another_worker_beside_a_local_one(run: Path) -> None:
    shutil.copy(events(run, "worker0"), events(run, "worker1"))
    edit(run, "worker1", "", index=1)


asked_for_async = partial(tell_settings, replication="async", replicas_to_aggregate=None)
asked_for_all_replicas = partial(tell_settings, replicas_to_aggregate=3)
one_worker_tells_no_settings = partial(drop, task="worker1", event="started")
counted_for_a_stranger = partial(count, worker9=0)
a_tower_was_computed_too_often = partial(count, worker0=STEPS - 10, worker1=STEPS + 10)
a_tower_less_was_counted = partial(count, worker2=STEPS - 1)
a_client_that_met_another_worker = partial(edit, task="worker2", event="started", nonce=12345)
a_client_that_met_nobody = partial(edit, task="worker0", event="peers_ready", worker_nonces={})
another_server = partial(edit, task="server0", event="started", nonce=12345)
another_server_later = partial(meet_again, task="worker1", server_nonce=12345)
no_records_of_a_worker = partial(lose, task="worker1")
no_records_of_a_server = partial(lose, task="server0")
a_ps_beside_a_local_one = partial(edit, task="worker0", event="peers_ready", ps_nonces={"ps0": 7})
FORGERIES = {
    SYNC: [
        Expected(asked_for_async, 1, None, "worker0 trained sync, 2 of 3"),
        # Whether late gradients make up for those that lack in each step is chance.
        Expected(asked_for_all_replicas, 1, None, "300 global steps of 3"),
        Expected(a_worker_was_told_otherwise, 1, {"same_settings"}, "worker1 trained async, the run is sync"),
        Expected(one_worker_trained_another_model, 1, {"same_settings"}, "worker1 trained linear, the run's"),
        Expected(one_worker_tells_no_settings, 2, None, "worker1 does not tell its settings"),
        Expected(counted_for_a_stranger, 1, {"contributions_add_up"}, "steps of worker9, which is no"),
        Expected(counted_as_async, 1, {"contributions_add_up"}, "300 global steps of 2 gradients are 600"),
        Expected(
            one_worker_in_a_step_twice,
            1,
            {"contributions_add_up", "fair_shares", "steps_interleave"},
            "600 gradients in 300 global steps, which take one each",
        ),
        Expected(two_workers_are_idle, 1, {"contributions_add_up", "fair_shares"}, "of all workers but 1"),
        Expected(a_backup_computed_nothing, 1, None, "worker2 computed no gradient"),
        Expected(no_records_of_a_worker, 2, None, "worker1.jsonl: No such file"),
    ],
    IN_GRAPH: [
        Expected(
            a_tower_was_never_computed,
            1,
            {"contributions_add_up", "workers_overlap", "steps_interleave", "steps_accounted"},
            "worker2: the chief counted 300 of its steps, its records tell 0",
        ),
        Expected(
            a_tower_was_computed_too_often, 1, {"contributions_add_up"}, "worker1: 310 gradients in 300"
        ),
        Expected(a_tower_less_was_counted, 1, {"contributions_add_up"}, "300 global steps of 3 gradients"),
        Expected(a_client_that_met_another_worker, 1, {"workers_met"}, "worker0 met a worker2 that is not"),
        Expected(a_client_that_met_nobody, 1, {"workers_met"}, "worker0 and worker2 did not meet"),
        Expected(another_server, 1, {"servers_met"}, "worker0 used a server that is not server0"),
        Expected(no_records_of_a_worker, 2, None, "worker1.jsonl: No such file"),
        Expected(no_records_of_a_server, 2, None, "server0.jsonl: No such file"),
    ],
    ASYNC_ON_SERVERS: [
        Expected(another_server, 1, {"servers_met"}, "worker0 used a server that is not server0"),
        Expected(another_server_later, 1, {"servers_met"}, "worker1 used a server that is not server1"),
        Expected(no_word_of_the_server, 2, {"servers_met"}, "worker0 does not tell which server"),
        Expected(a_server_that_failed, 1, {"ended_well"}, "server0 failed (program): bug"),
    ],
    LOCAL: [
        Expected(another_worker_beside_a_local_one, 1, {"records_complete"}, "worker1 left records, but"),
        Expected(
            a_ps_beside_a_local_one, 1, {"same_parameter_servers"}, "worker0 met ps0, which is no ps of"
        ),
    ],
}


@pytest.mark.parametrize(
    ("kind", "expected"), [(kind, one) for kind in FORGERIES for one in FORGERIES[kind]], ids=str
)
def test_a_contradiction_is_found(copy_of: Callable[[str], Path], kind: str, expected: Expected) -> None:
    expected.hold(copy_of(kind))


def test_workers_that_each_trained_alone_are_not_synchronous(
    split_brain: Path, copy_of: Callable[[str], Path]
) -> None:
    """Two clusters of one worker, told as if they were one that trains synchronously."""
    run = Path(shutil.copytree(split_brain, copy_of(SYNC).parent / "split"))
    tell_settings(run, replication="sync")
    for worker in ("worker0", "worker1"):
        settings = records(run, worker)[0]["settings"]
        edit(run, worker, "started", settings=settings | {"replication": "sync", "replicas_to_aggregate": 2})
    assert {"same_parameter_servers", "workers_met", "contributions_add_up"} <= checks(verdict_of(run), False)
