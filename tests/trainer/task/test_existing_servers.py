"""Clients of existing servers: each client connects to its own server, and ends it however it ends itself."""

import signal
from pathlib import Path

import pytest

from tests.psfleet.evidence.adversaries.real_runs import RealRuns
from tests.psfleet.evidence.replications import IN_GRAPH
from tests.trainer.processes import Cluster
from trainer.contract.exit_codes import DIVERGED, PEERS_MISSING, STOPPED

EXISTING = ["--existing_servers=true", "--model=linear"]


@pytest.mark.parametrize(
    ("run", "servers", "gradients_in_a_step"),
    [pytest.param("sync_on_servers", [0, 1], 2, marks=pytest.mark.chaos), (IN_GRAPH, [0], 3)],
)
def test_clients_train_on_their_servers_and_all_tasks_end(
    real_runs: RealRuns, run: str, servers: list[int], gradients_in_a_step: int
) -> None:
    tasks = real_runs.tasks_of(run)  # all have ended by themselves, and well
    for index in servers:
        nonce = tasks.only(f"server{index}", "started").integer("nonce")
        ready = tasks.only(f"worker{index}", "peers_ready")
        assert ready.integer("server_nonce") == nonce
        assert ready.integers("worker_nonces")[f"worker{index}"] != nonce
        assert tasks.only(f"server{index}", "finished").text("reason") == "run over"
        assert not tasks.records(f"server{index}", "step")
    tasks.assert_one_fingerprint(*(f"worker{index}" for index in servers))
    finished = tasks.only("worker0", "finished")
    steps = finished.integer("global_step")
    assert sum(finished.integers("contributions").values()) == steps * gradients_in_a_step
    assert (tasks.directory("worker0") / "checkpoints" / f"model.ckpt-{steps}.index").exists()


@pytest.mark.chaos
def test_a_lost_server_rejoins_and_a_stopped_run_resumes_at_its_last_step(tmp_path: Path) -> None:
    with Cluster(tmp_path, flags=EXISTING, servers=[0, 1]) as cluster:
        cluster.start(flags=["--steps=1000000"])
        cluster.until_steps(50)
        cluster.signal("server1", signal.SIGKILL)
        cluster.start("server1")
        cluster.until(lambda: len(cluster.records("worker1", "peers_ready")) == 2, "worker 1 to go on")
        assert cluster.records("worker1", "recovering")
        assert not cluster.records("worker0", "recovering")
        before, after = cluster.records("worker1", "peers_ready")
        assert before.integer("server_nonce") != after.integer("server_nonce")
        assert before.integers("ps_nonces") == after.integers("ps_nonces")
        cluster.until_steps(50)

        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == {**dict.fromkeys(cluster.tasks, 0), "worker0": STOPPED}
        saved = cluster.records("worker0", "checkpointed")[-1].integer("global_step")
        stopped = cluster.only("worker0", "finished")
        assert sum(stopped.integers("contributions").values()) == stopped.integer("global_step") == saved
        for index in (0, 1):
            assert cluster.only(f"server{index}", "finished").text("reason") == "stopped"
        cluster.start(flags=[f"--steps={saved + 100}"])
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0)
        assert cluster.only("worker0", "restored").integer("global_step") == saved
        cluster.assert_one_fingerprint("worker0", "worker1")
        assert cluster.nothing_listens()


def test_a_failed_run_ends_its_servers(tmp_path: Path) -> None:
    with Cluster(tmp_path, flags=[*EXISTING, "--learning_rate=1e30"], servers=[0, 1]) as cluster:
        cluster.start()
        assert cluster.wait() == dict.fromkeys(cluster.tasks, DIVERGED)
        for index in (0, 1):
            assert "loss is" in cluster.only(f"server{index}", "failed").text("reason")


def test_a_missing_server_is_named_and_a_server_without_a_run_ends(tmp_path: Path) -> None:
    flags = [*EXISTING, "--barrier_deadline_seconds=4"]
    with Cluster(tmp_path, flags=flags, servers=[0, 1]) as cluster:
        cluster.serve("ps0", "server0")
        cluster.start("worker0", "worker1")
        assert cluster.wait() == dict.fromkeys(("ps0", "server0", "worker0", "worker1"), PEERS_MISSING)
        address = cluster.hosts["worker"][1]
        for task in ("server0", "worker1"):
            assert f"server1 at {address} (connection refused)" in cluster.only(task, "failed").text("reason")
