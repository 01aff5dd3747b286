"""Synchronous training: a step is of so many gradients, backups are not waited for, nobody trains alone."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.fingerprints import assert_one_fingerprint
from tests.trainer.processes import ROOT, Cluster
from trainer.exit_codes import PEERS_MISSING
from trainer.records import Record

SIGTERM_EXIT = 143
ENDLESS = "--steps=1000000"


def _sync(replicas: int, *flags: str) -> list[str]:
    return ["--replication=sync", f"--replicas_to_aggregate={replicas}", *flags]


def _global_step(cluster: Cluster) -> int:
    value = cluster.progress().get("global_step", 0)
    return value if isinstance(value, int) else 0


def _until_steps(cluster: Cluster, more: int) -> None:
    goal = _global_step(cluster) + more
    cluster.until(lambda: _global_step(cluster) >= goal, f"global step {goal}")


def _steps_within(cluster: Cluster, seconds: float) -> int:
    # `progress.json` may be half a second old.
    time.sleep(1)
    before = _global_step(cluster)
    time.sleep(seconds)
    return _global_step(cluster) - before


def _assert_exact(finished: Record, replicas: int) -> None:
    contributions = finished.integers("contributions")
    steps = finished.integer("global_step")
    assert sum(contributions.values()) == steps * replicas, (contributions, steps)
    assert max(contributions.values()) <= steps


@pytest.fixture(scope="module")
def every_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One ps and two workers, both in every step; it has ended."""
    flags = ["--replication=sync", "--model=linear", "--steps=300"]
    with Cluster(tmp_path_factory.mktemp("every"), flags=flags) as cluster:
        cluster.start()
        cluster.codes = cluster.wait()
        yield cluster


@pytest.fixture(scope="module")
def one_backup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two ps and three workers, two in each step; it has ended."""
    with Cluster(
        tmp_path_factory.mktemp("backup"), ps=2, workers=3, flags=_sync(2, "--steps=400")
    ) as cluster:
        cluster.start()
        cluster.codes = cluster.wait()
        yield cluster


def test_each_step_is_of_as_many_gradients_as_asked_for(every_worker: Cluster, one_backup: Cluster) -> None:
    for cluster, steps in ((every_worker, 300), (one_backup, 400)):
        assert cluster.codes == dict.fromkeys(cluster.tasks, 0)
        finished = cluster.only("worker0", "finished")
        assert finished.text("reason") == "last step"
        assert finished.integer("global_step") == steps
        _assert_exact(finished, replicas=2)
    # Without a number given, all workers are in every step.
    assert every_worker.only("worker0", "finished").integers("contributions") == {
        "worker0": 300,
        "worker1": 300,
    }


def test_a_worker_offers_at_most_one_gradient_a_step(every_worker: Cluster, one_backup: Cluster) -> None:
    for cluster in (every_worker, one_backup):
        contributions = cluster.only("worker0", "finished").integers("contributions")
        for worker, count in contributions.items():
            offered = cluster.only(worker, "finished").integer("local_step")
            assert 0 < count <= offered <= cluster.only("worker0", "finished").integer("global_step")
            windows = cluster.records(worker, "step")
            assert sum(window.integer("steps") for window in windows) == offered
            assert max(window.integer("staleness_max") for window in windows) <= len(contributions)


def test_the_model_learns(every_worker: Cluster, one_backup: Cluster) -> None:
    line = every_worker.only("worker0", "evaluated").fields["metrics"]
    digits = one_backup.only("worker0", "evaluated").fields["metrics"]
    assert isinstance(line, dict)
    assert isinstance(digits, dict)
    assert line["weight"] == pytest.approx(2, abs=0.1)
    assert line["bias"] == pytest.approx(10, abs=0.1)
    assert digits["accuracy"] > 0.9


def test_all_leave_at_once_after_the_last_step(every_worker: Cluster, one_backup: Cluster) -> None:
    for cluster in (every_worker, one_backup):
        workers = [task for task in cluster.tasks if task.startswith("worker")]
        last_step = max(cluster.records(worker, "step")[-1].monotonic for worker in workers)
        assert max(cluster.ended[worker] for worker in workers[1:]) - last_step < 2
        # The chief evaluates, saves and ends the ps.
        assert max(cluster.ended.values()) - last_step < 5


def test_all_have_read_one_model_and_it_is_the_one_that_was_saved(
    every_worker: Cluster, one_backup: Cluster
) -> None:
    assert_one_fingerprint(every_worker, "worker0", "worker1")
    assert_one_fingerprint(one_backup, "worker0", "worker1", "worker2")


def test_the_mean_is_over_the_gradients_of_the_step(tmp_path: Path) -> None:
    """Two workers go the same way downhill as one alone: not half as fast, and not twice."""
    flags = ["--model=linear", "--steps=20", "--steps_to_validate=1", "--learning_rate=0.05"]
    losses = []
    for replicas in (1, 2):
        with Cluster(tmp_path / str(replicas), workers=replicas, flags=_sync(replicas, *flags)) as cluster:
            cluster.folder.mkdir()
            cluster.start()
            assert set(cluster.wait().values()) == {0}
            losses.append([float(x) for x in re.findall(r", loss: ([0-9.]+)", cluster.output("worker0"))])
    alone, together = losses
    assert len(alone) == len(together) == 20
    # The second worker has batches of its own.
    assert together[0] == pytest.approx(alone[0], rel=0.05)
    for one, two in zip(alone[5:], together[5:], strict=True):
        assert two == pytest.approx(one, rel=0.2)


def test_a_slow_worker_is_not_waited_for_where_there_is_a_backup(tmp_path: Path) -> None:
    with Cluster(tmp_path, ps=2, workers=3, flags=_sync(2, "--model=linear", ENDLESS)) as cluster:
        cluster.start()
        _until_steps(cluster, 30)
        cluster.signal("worker2", signal.SIGSTOP)
        # Where it was stopped amid its gradients, one step is taken again, after 3 s.
        time.sleep(4)
        assert _steps_within(cluster, 4) > 20
        assert cluster.progress()["missing"] == []
        cluster.signal("worker2", signal.SIGCONT)
        counted = cluster.progress()["contributions"]
        _until_steps(cluster, 100)
        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == {**dict.fromkeys(cluster.tasks, 0), "worker0": SIGTERM_EXIT}
        finished = cluster.only("worker0", "finished")
        _assert_exact(finished, replicas=2)
        assert isinstance(counted, list)
        assert finished.integers("contributions")["worker2"] > counted[2]


def test_without_a_backup_all_wait_and_a_stopped_run_goes_on_at_that_very_step(tmp_path: Path) -> None:
    with Cluster(tmp_path, flags=_sync(2, "--model=linear")) as cluster:
        cluster.start(flags=[ENDLESS])
        _until_steps(cluster, 30)
        cluster.signal("worker1", signal.SIGSTOP)
        cluster.until(lambda: cluster.progress()["phase"] == "waiting", "the chief to wait for a gradient")
        missing = cluster.progress()["missing"]
        assert isinstance(missing, list)
        assert [entry["task"] for entry in missing] == ["worker1"]
        assert f"The step waits for worker1 at {cluster.hosts['worker'][1]} (" in cluster.output("worker0")
        assert _steps_within(cluster, 3) == 0
        cluster.signal("worker1", signal.SIGCONT)
        _until_steps(cluster, 50)
        assert cluster.progress()["phase"] == "training"
        assert cluster.progress()["missing"] == []

        stopped_at = time.monotonic()
        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == {"ps0": 0, "worker0": SIGTERM_EXIT, "worker1": 0}
        assert max(cluster.ended.values()) - stopped_at < 5
        finished = cluster.only("worker0", "finished")
        saved = cluster.records("worker0", "checkpointed")[-1].integer("global_step")
        assert finished.integer("global_step") == saved
        _assert_exact(finished, replicas=2)
        windows = cluster.records("worker0", "step")
        assert sum(window.number("waiting_seconds") for window in windows) > 3
        assert all(window.number("waiting_seconds") <= window.number("seconds") for window in windows)

        cluster.start(flags=[f"--steps={saved + 100}"])
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0)
        assert cluster.only("worker0", "restored").integer("global_step") == saved
        finished = cluster.records("worker0", "finished")[-1]
        assert finished.integer("global_step") == saved + 100
        assert cluster.records("worker1", "finished")[-1].integer("local_step") == 100
        _assert_exact(finished, replicas=2)


def test_a_killed_worker_chief_and_ps_come_back_into_the_run(tmp_path: Path) -> None:
    flags = _sync(2, "--model=linear", "--checkpoint_interval_seconds=0.5")
    with Cluster(tmp_path, ps=2, workers=3, flags=[*flags, "--steps=1500"]) as cluster:
        cluster.start()
        for task in ("worker1", "worker0", "ps1", "ps0"):
            _until_steps(cluster, 60)
            cluster.signal(task, signal.SIGKILL)
            time.sleep(1)
            cluster.start(task)
            _until_steps(cluster, 1)
        # Rarely a call of worker2 to the killed ps never returns; under systemd its watchdog ends it.
        others = [task for task in cluster.tasks if task != "worker2"]
        assert cluster.wait(*others) == dict.fromkeys(others, 0)
        finished = cluster.only("worker0", "finished")
        assert finished.integer("global_step") == 1500
        _assert_exact(finished, replicas=2)
        assert len(cluster.records("worker0", "restored")) >= 2
        for worker in ("worker0", "worker1"):
            assert len(cluster.records(worker, "started")) == 2
            assert cluster.records(worker, "step")[-1].integer("global_step_after") == 1500
        metrics = cluster.only("worker0", "evaluated").fields["metrics"]
        assert isinstance(metrics, dict)
        assert metrics["bias"] == pytest.approx(10, abs=0.1)


def test_a_worker_that_dies_amid_its_gradients_costs_one_round(tmp_path: Path) -> None:
    with Cluster(tmp_path, flags=_sync(2, "--model=linear", "--steps=100")) as cluster:
        cluster.start("ps0", "worker0")
        cluster.start("worker1", program=[str(ROOT / "tests" / "trainer" / "dying_program.py")])
        cluster.until(lambda: _global_step(cluster) == 19, "the step before the death of worker1")
        again = "worker1 stopped amid its gradients: the step is taken again without them."
        cluster.until(lambda: again in cluster.output("worker0"), "the round to be opened anew")
        cluster.start("worker1")
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0)
        assert cluster.output("worker0").count(again) == 1
        assert cluster.progress()["restarts"] == [0, 1]
        finished = cluster.only("worker0", "finished")
        assert finished.integer("global_step") == 100
        assert finished.integers("contributions") == {"worker0": 100, "worker1": 100}
        assert cluster.only("worker1", "finished").integer("local_step") == 81


def test_a_run_whose_worker_never_comes_back_ends_and_names_it(tmp_path: Path) -> None:
    flags = _sync(2, "--model=linear", ENDLESS, "--barrier_deadline_seconds=6")
    with Cluster(tmp_path, flags=flags) as cluster:
        cluster.start()
        _until_steps(cluster, 30)
        cluster.signal("worker1", signal.SIGKILL)
        step = cluster.records("worker0", "step")
        codes = cluster.wait()
        assert codes["ps0"] == codes["worker0"] == PEERS_MISSING
        failed = cluster.only("worker0", "failed")
        assert failed.text("class") == "peers_missing"
        address = cluster.hosts["worker"][1]
        assert re.fullmatch(
            rf"no step within \d+ s: waited for worker1 at {address} \(connection refused\)",
            failed.text("reason"),
        )
        # Nobody has trained alone: after the other was gone, at most the step that it had offered to came.
        last = cluster.records("worker0", "step")[-1].integer("global_step_after")
        contributions = cluster.progress()["contributions"]
        assert contributions == [last, last]
        assert len(cluster.records("worker0", "step")) <= len(step) + 1
