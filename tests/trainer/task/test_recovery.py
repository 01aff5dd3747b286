"""A lost ps costs at most the unsaved steps; stopping saves the last step, and resuming continues there."""

import signal
from pathlib import Path

from tests.trainer.processes import PAUSING, Cluster
from trainer.contract.exit_codes import STOPPED
from trainer.model.checkpoints import checkpoint_paths


def _last_saved(cluster: Cluster) -> str:
    return Path(cluster.records("worker0", "checkpointed")[-1].text("path")).name


def _assert_that_it_waited_as_the_same_process(cluster: Cluster, worker: str) -> None:
    cluster.only(worker, "started")
    events = [record.event for record in cluster.records(worker)]
    lost = events.index("recovering")
    back = events.index("peers_ready", lost)
    assert set(events[lost + 1 : back]) <= {"restored", "checkpoint_damaged"}, "no step meanwhile"
    assert "Waiting for ps1" in cluster.output(worker)


def test_a_lost_ps_costs_only_unsaved_steps_and_a_stopped_run_resumes_at_its_last_step(
    tmp_path: Path,
) -> None:
    flags = ["--checkpoint_interval_seconds=0.3"]
    with Cluster(tmp_path, ps=2, flags=flags) as cluster:
        cluster.start(flags=["--steps=1000000"])
        cluster.until(lambda: len(cluster.records("worker0", "checkpointed")) >= 2, "two checkpoints")
        cluster.signal("ps1", signal.SIGKILL)
        cluster.until(lambda: bool(cluster.records("worker0", "recovering")), "the loss to be noticed")
        paths = checkpoint_paths(cluster.directory("worker0") / "checkpoints")
        cluster.until(lambda: _last_saved(cluster) == paths[-1].name, "the end of the last save")
        paths[-1].with_name(f"{paths[-1].name}.data-00000-of-00001").write_bytes(b"damaged")
        cluster.start("ps1")
        for worker in ("worker0", "worker1"):
            cluster.until(lambda of=worker: len(cluster.records(of, "peers_ready")) > 1, worker)  # type: ignore[misc]
        for worker in ("worker0", "worker1"):
            _assert_that_it_waited_as_the_same_process(cluster, worker)
        events = cluster.records("worker0")
        restored = cluster.only("worker0", "restored")
        before = events[: events.index(restored)]
        saved = [record.integer("global_step") for record in before if record.event == "checkpointed"]
        assert restored.integer("global_step") == saved[-2]
        damaged = cluster.only("worker0", "checkpoint_damaged")
        assert (damaged.integer("global_step"), damaged.text("path")) == (saved[-1], str(paths[-1]))
        for worker in ("worker0", "worker1"):
            assert cluster.records(worker, "peers_ready")[-1].integer("global_step") >= saved[-2]
        nonces = [cluster.records("worker1", "peers_ready")[n].integers("ps_nonces") for n in (0, -1)]
        assert nonces[0]["ps0"] == nonces[1]["ps0"]
        assert nonces[0]["ps1"] != nonces[1]["ps1"]

        cluster.until(lambda: cluster.progress()["still_seconds"] > 0, "a step")  # type: ignore[operator]
        assert cluster.progress()["steps_lost"] > 0  # type: ignore[operator]
        cluster.until(lambda: cluster.global_step() > 2000, "2000 global steps")
        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == {**dict.fromkeys(cluster.tasks, 0), "worker0": STOPPED}
        stopped = cluster.only("worker0", "finished")
        step = stopped.integer("global_step")
        assert cluster.records("worker0", "checkpointed")[-1].integer("global_step") == step
        assert sum(stopped.integers("contributions").values()) == step
        for task in cluster.tasks:
            assert cluster.only(task, "finished").text("reason") == "stopped"
        assert cluster.progress()["phase"] == "stopped"

        cluster.start(flags=[f"--steps={step + 200}"])
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0)
        again = cluster.records("worker0", "restored")[-1]
        assert again.integer("global_step") == step
        assert again.text("checkpoint").endswith(f"model.ckpt-{step}")
        last = cluster.records("worker0", "finished")[-1]
        assert sum(last.integers("contributions").values()) == last.integer("global_step") >= step + 200
        taken = [
            cluster.records(worker, "finished")[-1].integer("local_step") for worker in cluster.tasks[2:]
        ]
        assert sum(taken) == last.integer("global_step") - step
        assert cluster.metrics()["accuracy"] > 0.93
        assert len(list(cluster.directory("worker0").glob("checkpoints/model.ckpt-*.index"))) == 3
        assert "Epoch: " in cluster.output("worker1")


def test_a_chief_on_a_host_that_shuts_down_saves_and_the_run_continues_after_the_boot(tmp_path: Path) -> None:
    shutdown = tmp_path / "shutdown"
    with Cluster(tmp_path, flags=["--model=linear", "--steps=100000000"], program=PAUSING) as cluster:
        cluster.environment = {"PSFLEET_SHUTDOWN_FILE": str(shutdown)}
        cluster.start()
        cluster.until_steps(100)
        shutdown.touch()
        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait("worker0") == {"worker0": STOPPED}
        left = cluster.only("worker0", "finished")
        assert left.text("reason") == "host went down"
        assert cluster.records("worker0", "checkpointed")[-1].integer("global_step") >= 100
        assert cluster.progress()["phase"] == "training"
        shutdown.unlink()
        cluster.start("worker0")
        cluster.until(lambda: len(cluster.records("worker0", "peers_ready")) == 2, "the chief to be back")
        assert cluster.records("worker0", "peers_ready")[1].integer("global_step") >= left.integer(
            "global_step"
        )
        assert cluster.records("worker0", "restored") == []
        assert len(cluster.records("worker1", "peers_ready")) == 1
        cluster.until_steps(100)
        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == {**dict.fromkeys(cluster.tasks, 0), "worker0": STOPPED}
        assert cluster.progress()["phase"] == "stopped"


def test_a_restarted_task_of_a_begun_run_waits_as_long_as_a_reboot_may_take(tmp_path: Path) -> None:
    """The worker starts again, as after a reboot of its host, and waits longer than its deadline."""
    flags = ["--model=linear", "--steps=100000000", "--barrier_deadline_seconds=0.1"]
    with Cluster(tmp_path, workers=1, flags=flags) as cluster:
        cluster.start("ps0")
        cluster.until(lambda: "listens at" in cluster.output("ps0"), "the ps")
        cluster.start("worker0", flags=["--barrier_deadline_seconds=60"])
        cluster.until_steps(100)
        cluster.signal("ps0", signal.SIGKILL)
        cluster.signal("worker0", signal.SIGKILL)
        cluster.start("worker0", flags=[])
        cluster.until(lambda: cluster.output("worker0").count("Waiting for ps0") > 0, "the wait for the ps")
        cluster.start("ps0")
        cluster.until(lambda: len(cluster.records("worker0", "peers_ready")) == 2, "the worker to be back")
