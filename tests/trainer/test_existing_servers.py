"""Clients of servers that run already: each connects to its own, and ends it on every way out."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.trainer.fingerprints import assert_one_fingerprint
from tests.trainer.processes import Cluster
from trainer.exit_codes import CONFIGURATION, DIVERGED, PEERS_MISSING, STOPPED
from trainer.probes import probe

EXISTING = ["--existing_servers=true", "--model=linear"]
STEPS = 400


@pytest.mark.parametrize("replication", ["async", "sync", "in_graph"])
def test_clients_train_on_their_servers_and_all_end(tmp_path: Path, replication: str) -> None:
    servers = [0] if replication == "in_graph" else [0, 1]
    flags = [*EXISTING, f"--replication={replication}", f"--steps={STEPS}"]
    with Cluster(tmp_path, flags=flags, servers=servers) as cluster:
        cluster.start()
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0)
        for index in servers:
            started, ready = (
                cluster.only(f"server{index}", "started"),
                cluster.only(f"worker{index}", "peers_ready"),
            )
            assert ready.integer("server_nonce") == started.integer("nonce")
            assert ready.integers("worker_nonces")[f"worker{index}"] != started.integer("nonce")
            assert cluster.only(f"server{index}", "finished").text("reason") == "run over"
            assert not cluster.records(f"server{index}", "step")
        assert_one_fingerprint(cluster, *(f"worker{index}" for index in servers))
        finished = cluster.only("worker0", "finished")
        shares = 2 if replication in {"sync", "in_graph"} else 1
        assert sum(finished.integers("contributions").values()) == finished.integer("global_step") * shares
        step = finished.integer("global_step")
        assert (cluster.directory("worker0") / "checkpoints" / f"model.ckpt-{step}.index").exists()
        assert max(cluster.ended.values()) - min(cluster.ended.values()) < 8
        for address in (*cluster.hosts["ps"], *cluster.hosts["worker"]):
            assert probe(address) == "connection refused"


def test_a_stopped_run_stops_the_servers_and_goes_on_at_that_very_step(tmp_path: Path) -> None:
    with Cluster(tmp_path, flags=EXISTING, servers=[0, 1]) as cluster:
        cluster.start(flags=["--steps=1000000"])
        cluster.until(lambda: cluster.global_step() > 50, "50 global steps")
        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == {**dict.fromkeys(cluster.tasks, 0), "worker0": STOPPED}
        saved = cluster.only("worker0", "checkpointed").integer("global_step")
        assert cluster.only("worker0", "finished").integer("global_step") == saved
        for index in (0, 1):
            assert cluster.only(f"server{index}", "finished").text("reason") == "stopped"
        cluster.start(flags=[f"--steps={saved + 100}"])
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0)
        assert cluster.only("worker0", "restored").integer("global_step") == saved


def test_a_lost_server_that_comes_back_costs_its_client_a_new_connection(tmp_path: Path) -> None:
    with Cluster(tmp_path, flags=[*EXISTING, "--steps=3000"], servers=[0, 1]) as cluster:
        cluster.start()
        cluster.until(lambda: cluster.global_step() > 50, "50 global steps")
        cluster.signal("server1", signal.SIGKILL)
        cluster.start("server1")
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0)
        assert cluster.records("worker1", "recovering")
        assert not cluster.records("worker0", "recovering")
        before, after = cluster.records("worker1", "peers_ready")
        assert before.integer("server_nonce") != after.integer("server_nonce")
        assert before.integers("ps_nonces") == after.integers("ps_nonces")
        finished = cluster.only("worker0", "finished")
        assert sum(finished.integers("contributions").values()) == finished.integer("global_step")


def test_a_failed_run_takes_the_servers_along(tmp_path: Path) -> None:
    with Cluster(tmp_path, flags=[*EXISTING, "--learning_rate=1e30"], servers=[0, 1]) as cluster:
        cluster.start()
        assert cluster.wait() == dict.fromkeys(cluster.tasks, DIVERGED)
        for index in (0, 1):
            assert "loss is" in cluster.only(f"server{index}", "failed").text("reason")


def test_a_missing_server_is_named_and_a_server_without_a_run_ends(tmp_path: Path) -> None:
    flags = [*EXISTING, "--barrier_deadline_seconds=4"]
    with Cluster(tmp_path, flags=flags, servers=[0, 1]) as cluster:
        cluster.start("ps0", "server0", "worker0", "worker1")
        assert cluster.wait() == dict.fromkeys(("ps0", "server0", "worker0", "worker1"), PEERS_MISSING)
        address = cluster.hosts["worker"][1]
        for task in ("server0", "worker1"):
            assert f"server1 at {address} (connection refused)" in cluster.only(task, "failed").text("reason")


def test_a_client_with_other_settings_takes_its_server_along(tmp_path: Path) -> None:
    with Cluster(tmp_path, flags=EXISTING, servers=[0, 1]) as cluster:
        cluster.start("ps0", "server0", "server1", "worker0", flags=["--steps=400"])
        cluster.start("worker1", flags=["--steps=500"])
        assert cluster.wait() == dict.fromkeys(cluster.tasks, CONFIGURATION)
