"""Real runs of each replication are proven by its own records; what contradicts the replication is found."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.evidence.cases import Expected
from tests.evidence.run_folders import (
    RUN_ID,
    checks,
    detail,
    drop,
    edit,
    events,
    records,
    rewrite,
    tell_settings,
    train,
    verdict_of,
)

STEPS = 300
SYNC, IN_GRAPH, ASYNC_ON_SERVERS, LOCAL = "sync", "in_graph", "async_on_servers", "local"
# Flags, ps and workers of each.
KINDS: dict[str, tuple[tuple[str, ...], int, int]] = {
    SYNC: (("--model=placement_demo", "--replication=sync", "--replicas_to_aggregate=2"), 2, 3),
    IN_GRAPH: (("--model=linear", "--replication=in_graph", "--existing_servers=true"), 1, 3),
    ASYNC_ON_SERVERS: (("--model=cnn", "--existing_servers=true"), 1, 2),
    LOCAL: (("--model=linear", "--replication=local"), 1, 2),
}
HEADLINES = {
    SYNC: "PROVEN: 3 workers trained one model together, 2 gradients to a step, through 2 ps, and it"
    " converged",
    IN_GRAPH: "PROVEN: one client trained one model on 3 workers together through 1 ps, and it converged",
    ASYNC_ON_SERVERS: "PROVEN: 2 workers trained one model together through 1 ps, and it converged",
    LOCAL: "PROVEN: one process trained the model by itself, without ps, and it converged",
}
CONTRIBUTIONS = {SYNC: 2 * STEPS, IN_GRAPH: 3 * STEPS, LOCAL: STEPS}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a real run of a kind, trained where it was not yet."""
    folders: dict[str, Path] = {}

    def run_of(kind: str) -> Path:
        if kind not in folders:
            flags, ps, workers = KINDS[kind]
            folders[kind] = train(tmp_path_factory.mktemp(kind), workers, (*flags, f"--steps={STEPS}"), ps=ps)
        return folders[kind]

    return run_of


@pytest.fixture
def copy_of(trained: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a copy of such a folder, to damage."""
    return lambda kind: Path(shutil.copytree(trained(kind), tmp_path / RUN_ID))


@pytest.mark.parametrize("kind", KINDS)
def test_a_real_run_is_proven(trained: Callable[[str], Path], kind: str) -> None:
    verdict = verdict_of(trained(kind))
    assert checks(verdict, False, None) == set(), verdict.failing
    assert verdict.headline == HEADLINES[kind]
    assert ("servers_met" in checks(verdict, True)) == (kind in {IN_GRAPH, ASYNC_ON_SERVERS})
    if kind in CONTRIBUTIONS:
        assert f"= {CONTRIBUTIONS[kind]}" in detail(verdict, "contributions_add_up")


def test_a_local_run_shares_with_nobody_and_says_so(trained: Callable[[str], Path]) -> None:
    verdict = verdict_of(trained(LOCAL))
    for name in (
        "same_parameter_servers",
        "workers_met",
        "fair_shares",
        "workers_overlap",
        "steps_interleave",
    ):
        assert "nobody to share with" in detail(verdict, name)
    assert "of 1 task" in detail(verdict, "records_complete")


def count(run: Path, **contributions: int) -> None:
    told = records(run, "worker0")[-1]["contributions"]
    edit(run, "worker0", "finished", contributions=told | contributions)


def lose(run: Path, task: str) -> None:
    events(run, task).unlink()


def asked_for_async(run: Path) -> None:
    tell_settings(run, replication="async", replicas_to_aggregate=None)


def asked_for_all_replicas(run: Path) -> None:
    tell_settings(run, replicas_to_aggregate=3)


def one_worker_was_told_otherwise(run: Path) -> None:
    settings = records(run, "worker1")[0]["settings"]
    edit(run, "worker1", "started", settings=settings | {"replication": "async"})


def counted_as_if_asynchronous(run: Path) -> None:
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


def a_tower_was_computed_too_often(run: Path) -> None:
    count(run, worker0=STEPS - 10, worker1=STEPS + 10)


def a_tower_less_was_counted(run: Path) -> None:
    count(run, worker2=STEPS - 1)


def a_client_that_met_another_worker(run: Path) -> None:
    edit(run, "worker2", "started", nonce=12345)


def a_client_that_met_nobody(run: Path) -> None:
    edit(run, "worker0", "peers_ready", worker_nonces={})


def another_server(run: Path) -> None:
    edit(run, "server0", "started", nonce=12345)


def no_word_of_the_server(run: Path) -> None:
    changed = records(run, "worker0")
    for record in changed:
        record.pop("server_nonce", None)
    rewrite(run, "worker0", changed)


def a_server_that_failed(run: Path) -> None:
    failed = {"event": "failed", "class": "program", "reason": "bug"}
    every = records(run, "server0")
    rewrite(run, "server0", [*every[:-1], every[-1] | failed])


def no_records_of_a_worker(run: Path) -> None:
    lose(run, "worker1")


def no_records_of_a_server(run: Path) -> None:
    lose(run, "server0")


def another_worker_beside_a_local_one(run: Path) -> None:
    shutil.copy(events(run, "worker0"), events(run, "worker1"))
    edit(run, "worker1", "", index=1)


def a_ps_beside_a_local_process(run: Path) -> None:
    edit(run, "worker0", "peers_ready", ps_nonces={"ps0": 7})


FORGERIES: list[tuple[str, Expected]] = [
    (
        SYNC,
        Expected(asked_for_async, 1, None, "worker0 trained sync, 2 of 3"),
    ),
    (
        SYNC,
        Expected(
            asked_for_all_replicas, 1, {"same_settings", "contributions_add_up"}, "300 global steps of 3"
        ),
    ),
    (
        SYNC,
        Expected(
            one_worker_was_told_otherwise, 1, {"same_settings"}, "worker1 trained async, the run is sync"
        ),
    ),
    (
        SYNC,
        Expected(
            counted_as_if_asynchronous,
            1,
            {"contributions_add_up"},
            "300 global steps of 2 gradients are 600",
        ),
    ),
    (
        SYNC,
        Expected(
            one_worker_in_a_step_twice,
            1,
            {"contributions_add_up", "fair_shares", "steps_interleave"},
            "600 gradients in 300 global steps, which take one each",
        ),
    ),
    (
        SYNC,
        Expected(two_workers_are_idle, 1, {"contributions_add_up", "fair_shares"}, "of all workers but 1"),
    ),
    (SYNC, Expected(a_backup_computed_nothing, 1, None, "worker2 computed no gradient")),
    (SYNC, Expected(no_records_of_a_worker, 2, None, "worker1.jsonl: No such file")),
    (
        IN_GRAPH,
        Expected(
            a_tower_was_never_computed,
            1,
            {"contributions_add_up", "workers_overlap", "steps_interleave"},
            "worker2: the chief counted 300 of its steps, its records tell 0",
        ),
    ),
    (
        IN_GRAPH,
        Expected(
            a_tower_was_computed_too_often, 1, {"contributions_add_up"}, "worker1: 310 gradients in 300"
        ),
    ),
    (
        IN_GRAPH,
        Expected(a_tower_less_was_counted, 1, {"contributions_add_up"}, "300 global steps of 3 gradients"),
    ),
    (
        IN_GRAPH,
        Expected(a_client_that_met_another_worker, 1, {"workers_met"}, "worker0 met a worker2 that is not"),
    ),
    (IN_GRAPH, Expected(a_client_that_met_nobody, 1, {"workers_met"}, "worker0 and worker2 did not meet")),
    (IN_GRAPH, Expected(another_server, 1, {"servers_met"}, "worker0 used a server that is not server0")),
    (IN_GRAPH, Expected(no_records_of_a_worker, 2, None, "worker1.jsonl: No such file")),
    (IN_GRAPH, Expected(no_records_of_a_server, 2, None, "server0.jsonl: No such file")),
    (
        ASYNC_ON_SERVERS,
        Expected(another_server, 1, {"servers_met"}, "worker0 used a server that is not server0"),
    ),
    (
        ASYNC_ON_SERVERS,
        Expected(no_word_of_the_server, 2, {"servers_met"}, "worker0 does not tell which server"),
    ),
    (ASYNC_ON_SERVERS, Expected(a_server_that_failed, 1, {"ended_well"}, "server0 failed (program): bug")),
    (
        LOCAL,
        Expected(another_worker_beside_a_local_one, 1, {"records_complete"}, "worker1 left records, but"),
    ),
    (
        LOCAL,
        Expected(
            a_ps_beside_a_local_process, 1, {"same_parameter_servers"}, "worker0 met ps0, which is no ps of"
        ),
    ),
]


@pytest.mark.parametrize(("kind", "expected"), FORGERIES, ids=str)
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


def test_a_slow_backup_needs_no_share(copy_of: Callable[[str], Path]) -> None:
    run = copy_of(SYNC)
    count(run, worker0=STEPS, worker1=STEPS, worker2=0)
    verdict = verdict_of(run)
    assert "fair_shares" in checks(verdict, True)
    assert "(worker2 as backup)" in detail(verdict, "fair_shares")


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
def test_settings_that_name_no_replication_leave_everything_open(
    copy_of: Callable[[str], Path], training: dict[str, object], said: str
) -> None:
    run = copy_of(SYNC)
    tell_settings(run, **training)
    verdict = verdict_of(run)
    assert verdict.exit_code == 2
    assert checks(verdict, True, False) == set()
    assert said in detail(verdict, "workers_met")


def test_without_settings_the_chief_tells_the_replication(copy_of: Callable[[str], Path]) -> None:
    run = copy_of(SYNC)
    (run / "settings.json").unlink()
    assert verdict_of(run).headline == HEADLINES[SYNC]


def test_a_run_of_before_there_were_replications_is_judged_as_ever(run: Path) -> None:
    tell_settings(run)
    (run / "settings.json").write_text('{"training": {"model": "linear"}, "tasks": {}}')
    for worker in ("worker0", "worker1"):
        edit(run, worker, "started", settings={"model": "linear"})
    assert verdict_of(run).exit_code == 0
