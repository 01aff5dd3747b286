"""Stopping saves the very step, resuming goes on there, and a lost ps costs at most what was not saved."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.trainer.processes import Cluster

SIGTERM_EXIT = 143


def test_a_stopped_run_resumes_at_that_very_step(tmp_path: Path) -> None:
    linear = ["--model=linear"]
    with Cluster(tmp_path, flags=linear) as cluster:
        cluster.start(flags=["--steps=1000000"])
        cluster.until(lambda: cluster.global_step() > 50, "50 global steps")
        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == {"ps0": 0, "worker0": SIGTERM_EXIT, "worker1": 0}

        saved = cluster.only("worker0", "checkpointed").integer("global_step")
        finished = cluster.only("worker0", "finished")
        assert finished.text("reason") == "stopped"
        assert finished.integer("global_step") == saved > 50
        assert sum(finished.integers("contributions").values()) == saved
        assert cluster.only("worker1", "finished").text("reason") == "stopped"
        assert cluster.only("ps0", "finished").text("reason") == "stopped"
        assert cluster.progress()["phase"] == "stopped"

        cluster.start(flags=[f"--steps={saved + 200}"])
        assert cluster.wait() == {"ps0": 0, "worker0": 0, "worker1": 0}
        restored = cluster.only("worker0", "restored")
        assert restored.integer("global_step") == saved
        assert restored.text("checkpoint").endswith(f"model.ckpt-{saved}")
        # The other worker may have taken a step before the chief looked.
        assert cluster.records("worker0", "peers_ready")[1].integer("global_step") >= saved
        last = cluster.records("worker0", "finished")[1]
        assert sum(last.integers("contributions").values()) == last.integer("global_step") >= saved + 200
        steps_after = [
            cluster.records(worker, "finished")[1].integer("local_step") for worker in cluster.tasks[1:]
        ]
        assert sum(steps_after) == last.integer("global_step") - saved


def test_a_killed_ps_that_comes_back_costs_only_what_was_not_saved(tmp_path: Path) -> None:
    flags = ["--steps=2000", "--checkpoint_interval_seconds=0.3"]
    with Cluster(tmp_path, ps=2, workers=2, flags=flags) as cluster:
        cluster.start()
        cluster.until(lambda: len(cluster.records("worker0", "checkpointed")) >= 2, "two checkpoints")
        cluster.signal("ps1", signal.SIGKILL)
        cluster.start("ps1")
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0)

        events = cluster.records("worker0")
        restored = cluster.only("worker0", "restored")
        before = events[: events.index(restored)]
        saved = [record.integer("global_step") for record in before if record.event == "checkpointed"]
        assert restored.integer("global_step") == saved[-1] > 0
        for worker in ("worker0", "worker1"):
            assert cluster.records(worker, "recovering")
            assert cluster.records(worker, "peers_ready")[-1].integer("global_step") >= saved[-1]
        nonces = [cluster.records("worker1", "peers_ready")[n].integers("ps_nonces") for n in (0, -1)]
        assert nonces[0]["ps0"] == nonces[1]["ps0"]
        assert nonces[0]["ps1"] != nonces[1]["ps1"]

        finished = cluster.only("worker0", "finished")
        assert sum(finished.integers("contributions").values()) == finished.integer("global_step") >= 2000
        metrics = cluster.only("worker0", "evaluated").fields["metrics"]
        assert isinstance(metrics, dict)
        assert metrics["accuracy"] > 0.93
        assert len(list(cluster.directory("worker0").glob("checkpoints/model.ckpt-*.index"))) == 3
        assert "Epoch: " in cluster.output("worker1")
