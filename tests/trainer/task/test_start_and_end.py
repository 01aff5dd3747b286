"""Tasks start together, share their steps, and end together; a missing task is named."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.processes import Cluster
from tests.trainer.program.launched import DEAD_PROXY
from trainer.contract.exit_codes import FINISHED, PEERS_MISSING

LATE_SECONDS = 1.0
STEPS = 400


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Cluster]]:
    """Two ended runs: in the first, worker 1 started late; in the second, it never started."""
    linear = ["--model=linear", f"--steps={STEPS}"]
    with (
        Cluster(tmp_path_factory.mktemp("late"), flags=linear) as late,
        Cluster(
            tmp_path_factory.mktemp("missing"), flags=[*linear, "--barrier_deadline_seconds=20"]
        ) as missing,
    ):
        # A proxy that the environment names is not between the tasks.
        late.environment = DEAD_PROXY
        missing.serve("ps0")
        missing.start("worker0")
        late.start("ps0", "worker0")
        late.until(lambda: bool(late.progress().get("missing")), "the chief to miss somebody")
        since = late.wall()
        late.until(lambda: late.wall() > since + LATE_SECONDS, "the chief to have missed it for a while")
        late.start("worker1")
        late.codes, missing.codes = late.wait(), missing.wait()
        yield late, missing


@pytest.fixture(scope="module")
def late(clusters: tuple[Cluster, Cluster]) -> Cluster:
    return clusters[0]


@pytest.fixture(scope="module")
def missing(clusters: tuple[Cluster, Cluster]) -> Cluster:
    return clusters[1]


def test_every_task_ends_with_exit_code_0(late: Cluster) -> None:
    assert late.codes == {"ps0": 0, "worker0": 0, "worker1": 0}
    assert late.only("ps0", "finished").text("reason") == "run over"


def test_linear_regression_finds_weight_and_bias(late: Cluster) -> None:
    metrics = late.metrics()
    assert [metrics["weight"], metrics["bias"]] == pytest.approx([2, 10], abs=0.1)
    assert "Step: 100, global step:" in late.output("worker0")
    assert ", weight: 1.9" in late.output("worker0") or ", weight: 2.0" in late.output("worker0")


def test_contributions_add_up_to_the_global_step_and_are_each_workers_own_count(late: Cluster) -> None:
    finished = late.only("worker0", "finished")
    contributions = finished.integers("contributions")
    assert finished.text("reason") == "last step"
    assert sum(contributions.values()) == finished.integer("global_step") >= STEPS
    assert finished.integer("global_step") < STEPS + 2
    for worker, count in contributions.items():
        windows = late.records(worker, "step")
        assert count == late.only(worker, "finished").integer("local_step")
        assert (
            count == sum(window.integer("steps") for window in windows) == windows[-1].integer("local_step")
        )
        assert len(windows) <= 201


def test_windows_record_the_staleness_of_their_steps_and_no_waiting_time(late: Cluster) -> None:
    for window in (*late.records("worker0", "step"), *late.records("worker1", "step")):
        histogram = window.fields["staleness_histogram"]
        assert isinstance(histogram, list)
        assert sum(histogram) == window.integer("steps")
        assert window.integer("staleness_max").bit_length() == len(histogram) - 1
        assert window.number("waiting_seconds") == 0


def test_each_task_records_what_its_process_used_while_the_run_trained(late: Cluster) -> None:
    trained = max(late.only(worker, "finished").number("seconds") for worker in ("worker0", "worker1"))
    for task in ("ps0", "worker0", "worker1"):
        used = late.records(task, "resources")
        assert used
        assert sum(record.number("cpu_seconds") for record in used) > 0
        windows = sum(window.number("seconds") for window in late.records(task, "step"))
        assert sum(record.number("seconds") for record in used) >= 0.8 * (windows or trained)


def test_all_workers_read_the_same_nonces(late: Cluster) -> None:
    seen = [late.only(worker, "peers_ready") for worker in ("worker0", "worker1")]
    drawn = {worker: late.only(worker, "started").integer("nonce") for worker in ("worker0", "worker1")}
    assert len(set(drawn.values())) == 2
    for record in seen:
        assert record.integers("worker_nonces") == drawn
        assert record.integers("ps_nonces") == seen[0].integers("ps_nonces")
    assert seen[0].integers("ps_nonces")["ps0"] != 0


def test_no_worker_trains_before_the_late_worker_has_joined(late: Cluster) -> None:
    assert late.only("worker0", "peers_ready").number("waited_seconds") > LATE_SECONDS
    assert "Waiting for worker1 at" in late.output("worker0")
    assert "(connection refused)" in late.output("worker0")
    first = late.records("worker0", "step")[0]
    assert first.monotonic - first.number("seconds") > late.only("worker1", "started").monotonic


def test_the_chief_reports_the_finished_run(late: Cluster) -> None:
    progress = late.progress()
    contributions = late.only("worker0", "finished").integers("contributions")
    assert progress["phase"] == "finished"
    assert progress["contributions"] == list(contributions.values())
    assert progress["last_step"] == STEPS
    assert progress["missing"] == []


def test_checkpoints_are_only_on_the_chiefs_disk(late: Cluster) -> None:
    global_step = late.only("worker0", "finished").integer("global_step")
    folder = late.directory("worker0") / "checkpoints"
    assert (folder / f"model.ckpt-{global_step}.index").exists()
    assert not list(late.directory("ps0").rglob("*ckpt*"))


def test_all_workers_read_the_same_final_model_and_it_is_the_saved_one(late: Cluster) -> None:
    late.assert_one_fingerprint("worker0", "worker1")


def test_after_the_deadline_all_tasks_end_and_name_the_missing_task(missing: Cluster) -> None:
    assert missing.codes == {"ps0": PEERS_MISSING, "worker0": PEERS_MISSING}
    address = missing.hosts["worker"][1]
    for task in ("ps0", "worker0"):
        failed = missing.only(task, "failed")
        assert failed.text("class") == "peers_missing"
        assert f"worker1 at {address} (connection refused)" in failed.text("reason")
    assert missing.progress()["phase"] == "failed"
    assert missing.progress()["missing"] == [
        {"task": "worker1", "address": address, "reason": "connection refused"}
    ]
    assert missing.records("worker0", "step") == []


def test_no_process_listens_after_the_runs(late: Cluster, missing: Cluster) -> None:
    assert late.nothing_listens()
    assert missing.nothing_listens()


def test_a_ps_that_gets_sigterm_as_soon_as_the_run_is_over_counts_as_finished(tmp_path: Path) -> None:
    """Train.yml sends SIGTERM at the chief's end, when a ps may not yet have seen that the run is over."""
    with Cluster(tmp_path, ps=3, workers=1, flags=["--model=linear", "--steps=20"]) as cluster:
        cluster.start()
        cluster.until(lambda: cluster.has_ended("worker0"), "the chief's end", seconds=150)
        servers = ("ps0", "ps1", "ps2")
        for server in servers:
            cluster.signal(server, signal.SIGTERM)
        assert cluster.wait(*servers) == dict.fromkeys(servers, FINISHED)
        assert {cluster.only(server, "finished").text("reason") for server in servers} == {"run over"}
