"""Workers leave and join an asynchronous run that goes on, and no worker that cannot join ends it."""

import signal
from pathlib import Path

from tests.trainer.processes import PAUSING, Cluster
from trainer.contract.exit_codes import CONFIGURATION, FINISHED, STOPPED

ENDLESS = ["--model=linear", "--steps=10000000"]


def stop(cluster: Cluster) -> dict[str, int]:
    cluster.signal("worker0", signal.SIGTERM)
    return cluster.wait("ps0", "worker0")


def test_a_worker_that_does_not_fit_ends_alone_and_one_that_fits_joins_and_leaves(tmp_path: Path) -> None:
    with Cluster(tmp_path, flags=ENDLESS, program=PAUSING) as cluster:
        cluster.environment = {"PSFLEET_ABSENT_WORKERS": "1"}
        cluster.start("ps0", "worker0")
        cluster.until_steps(50)
        cluster.start("worker1", flags=["--learning_rate=0.123"])
        assert cluster.wait("worker1") == {"worker1": CONFIGURATION}
        assert "worker1 and worker0 differ in learning_rate" in cluster.output("worker1")
        cluster.until_steps(50)
        cluster.start("worker1", flags=[])
        cluster.until(lambda: bool(cluster.records("worker1", "step")), "a step of the worker that joined")
        cluster.signal("worker1", signal.SIGTERM)
        assert cluster.wait("worker1") == {"worker1": STOPPED}
        cluster.until_steps(50)
        assert stop(cluster) == {"ps0": FINISHED, "worker0": STOPPED}
        assert len(cluster.records("worker0", "peers_ready")) == 1


def test_a_worker_without_data_ends_alone(tmp_path: Path) -> None:
    with Cluster(tmp_path, flags=["--model=mnist_mlp", "--steps=10000000"], program=PAUSING) as cluster:
        cluster.environment = {"PSFLEET_ABSENT_WORKERS": "1"}
        cluster.start("ps0", "worker0")
        cluster.until_steps(20)
        (tmp_path / "empty").mkdir()
        cluster.start("worker1", flags=[f"--data_dir={tmp_path / 'empty'}"])
        assert cluster.wait("worker1")["worker1"] not in {FINISHED, STOPPED}
        cluster.until_steps(20)
        assert stop(cluster) == {"ps0": FINISHED, "worker0": STOPPED}


def test_a_chief_that_comes_back_with_the_ps_goes_on_without_a_worker_that_does_not(tmp_path: Path) -> None:
    with Cluster(tmp_path, flags=[*ENDLESS, "--checkpoint_interval_steps=50"], program=PAUSING) as cluster:
        cluster.start()
        cluster.until_steps(100)
        for task in ("worker1", "worker0", "ps0"):
            cluster.signal(task, signal.SIGKILL)
        cluster.start("ps0", "worker0", flags=["--barrier_deadline_seconds=1"])
        cluster.until(lambda: len(cluster.records("worker0", "peers_ready")) == 2, "the chief to go on")
        assert cluster.records("worker0", "peers_ready")[1].number("waited_seconds") >= 1
        cluster.start("worker1", flags=["--barrier_deadline_seconds=1"])
        cluster.until(lambda: len(cluster.records("worker1", "peers_ready")) == 2, "the worker to join")
        cluster.signal("worker0", signal.SIGTERM)
        cluster.wait()
