"""In-graph replication: one client, a tower on every worker, and workers that serve it."""

import json
import signal
from pathlib import Path

import pytest

from tests.trainer.model.test_partition import assert_all_parts_found
from tests.trainer.processes import Cluster
from trainer.contract.exit_codes import CONFIGURATION, PEERS_MISSING, STOPPED

PARTITION = ["--replication=in_graph", "--model=partition"]
LINEAR = ["--replication=in_graph", "--model=linear"]
STEPS = 300
_PLACES = (("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1), ("worker", 2))


def test_every_worker_computes_a_tower_in_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Cluster(tmp_path, ps=2, workers=3, flags=[*PARTITION, f"--steps={STEPS}"]) as cluster:
        cluster.start("ps0", "ps1", "worker0", "worker1")
        cluster.start("worker2", flags=["--batch_size=40"])
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0)

        chief = cluster.only("worker0", "finished")
        assert chief.integer("global_step") == STEPS
        assert chief.integers("contributions") == dict.fromkeys(("worker0", "worker1", "worker2"), STEPS)
        for worker, batch_size in (("worker0", 100), ("worker1", 100), ("worker2", 40)):
            finished, windows = cluster.only(worker, "finished"), cluster.records(worker, "step")
            assert finished.integer("local_step") == finished.integer("global_step") == STEPS
            assert finished.integer("examples") == STEPS * batch_size
            assert sum(window.integer("steps") for window in windows) == STEPS
            assert sum(window.integer("examples") for window in windows) == STEPS * batch_size
            assert windows[-1].integer("global_step_after") == STEPS
            assert len(windows) <= 201
        assert cluster.only("worker1", "finished").text("reason") == "run over"
        assert "Step: " in cluster.output("worker2")

        ready = cluster.only("worker0", "peers_ready")
        drawn = {f"worker{n}": cluster.only(f"worker{n}", "started").integer("nonce") for n in range(3)}
        assert ready.integers("worker_nonces") == drawn
        assert set(ready.integers("ps_nonces")) == {"ps0", "ps1"}
        assert not cluster.records("worker1", "peers_ready")
        cluster.assert_one_fingerprint("worker0")
        assert "fingerprint" not in cluster.only("worker1", "finished").fields
        # Two weights of each worker; each ps has a variable.
        held = {"variables": 1, "bytes": 4 * 3}
        assert cluster.only("worker0", "initialised").fields["ps_parameters"] == {"ps0": held, "ps1": held}
        assert_all_parts_found(cluster, monkeypatch)
        for worker in ("worker0", "worker1", "worker2"):
            assert len(list((cluster.directory(worker) / "summaries" / worker).iterdir())) == 1
        report = json.loads((cluster.directory("worker0") / "devices" / "worker0.json").read_text())
        used = {f"/job:{job}/replica:0/task:{n}/device:CPU:0" for job, n in _PLACES}
        assert used <= set(report["operations"])
        assert cluster.nothing_listens()


def test_lost_tasks_rejoin_and_a_stopped_run_resumes_at_its_last_step(tmp_path: Path) -> None:
    flags = [*LINEAR, "--checkpoint_interval_steps=100"]
    with Cluster(tmp_path, flags=flags) as cluster:
        cluster.start(flags=["--steps=1000000"])
        cluster.until_steps(50)
        cluster.signal("worker1", signal.SIGKILL)
        cluster.start("worker1")
        cluster.until(lambda: len(cluster.records("worker0", "peers_ready")) == 2, "the client to go on")
        before, after = cluster.records("worker0", "peers_ready")
        assert before.integers("ps_nonces") == after.integers("ps_nonces")
        assert before.integers("worker_nonces")["worker1"] != after.integers("worker_nonces")["worker1"]
        # The ps still hold everything: nothing is taken back.
        assert after.integer("global_step") > 50
        assert not cluster.records("worker0", "restored")
        told = "the restart to be told"
        cluster.until(lambda: cluster.progress()["restarts"] == [0, 1], told)

        cluster.until(lambda: len(cluster.records("worker0", "checkpointed")) > 1, "two checkpoints")
        cluster.signal("ps0", signal.SIGKILL)
        cluster.start("ps0")
        cluster.until(lambda: bool(cluster.records("worker0", "restored")), "the model to be restored")
        events = cluster.records("worker0")
        restored = cluster.only("worker0", "restored")
        earlier = events[: events.index(restored)]
        saved = [event.integer("global_step") for event in earlier if event.event == "checkpointed"]
        assert restored.integer("global_step") == saved[-1]
        # At each hundredth step; on a slow machine also by time.
        assert {*range(0, saved[-1] + 1, 100)} <= set(saved)

        cluster.until(lambda: cluster.progress()["phase"] == "training", "steps after the restore")
        cluster.until_steps(50)
        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == {"ps0": 0, "worker0": STOPPED, "worker1": 0}
        last = cluster.records("worker0", "checkpointed")[-1].integer("global_step")
        stopped = cluster.only("worker0", "finished")
        assert stopped.integer("global_step") == last
        assert stopped.integers("contributions") == {"worker0": last, "worker1": last}
        assert cluster.only("worker1", "finished").text("reason") == "stopped"

        cluster.start(flags=[f"--steps={last + 100}"])
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0)
        assert cluster.records("worker0", "restored")[-1].integer("global_step") == last
        finished = cluster.records("worker0", "finished")[1].integers("contributions")
        assert finished == {"worker0": last + 100, "worker1": last + 100}
        assert cluster.records("worker1", "finished")[1].integer("local_step") == 100


@pytest.mark.chaos
def test_a_missing_tower_is_named_and_all_tasks_end(tmp_path: Path) -> None:
    flags = [*LINEAR, "--barrier_deadline_seconds=4"]
    with Cluster(tmp_path, workers=3, flags=flags) as cluster:
        cluster.serve("ps0", "worker1")
        cluster.start("worker0")
        assert cluster.wait() == dict.fromkeys(("ps0", "worker0", "worker1"), PEERS_MISSING)
        address = cluster.hosts["worker"][2]
        for task in ("ps0", "worker0", "worker1"):
            reason = cluster.only(task, "failed").text("reason")
            assert f"worker2 at {address} (connection refused)" in reason
        assert cluster.progress()["phase"] == "failed"


def test_a_worker_with_a_different_replication_ends_the_run(tmp_path: Path) -> None:
    with Cluster(tmp_path, flags=["--model=linear"]) as cluster:
        cluster.start("ps0")
        cluster.start("worker0", flags=["--replication=in_graph"])
        cluster.start("worker1")
        codes = cluster.wait()
        assert codes == dict.fromkeys(cluster.tasks, CONFIGURATION), cluster.outputs()
        assert "differ in replication" in cluster.only("worker0", "failed").text("reason")
