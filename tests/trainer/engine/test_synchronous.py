"""Synchronous training: gradients per step, no waiting for backups, no worker alone."""

import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.psfleet.evidence.adversaries.real_runs import RealRuns
from tests.psfleet.evidence.replications import STEPS as STEPS_OF_KINDS
from tests.psfleet.evidence.replications import SYNC
from tests.repository import ROOT
from tests.trainer.forked import ForkedProcess
from tests.trainer.model.test_partition import assert_all_parts_found
from tests.trainer.processes import PAUSING, Cluster, Processes
from trainer.contract.exit_codes import PEERS_MISSING, STOPPED
from trainer.contract.records import Record
from trainer.model.checkpoints import read_checkpoint

ENDLESS = "--steps=1000000"
STEPS = 100
COUNTING = [str(ROOT / "tests" / "trainer" / "counting_program.py")]
COUNTED = ("--model=partition", "--learning_rate=1", "--checkpoint_interval_seconds=0.5", ENDLESS)
Ended = dict[int, Processes[ForkedProcess]]


def _sync(replicas: int, *flags: str) -> list[str]:
    return ["--replication=sync", f"--replicas_to_aggregate={replicas}", *flags]


def _assert_exact(finished: Record, replicas: int) -> None:
    contributions = finished.integers("contributions")
    steps = finished.integer("global_step")
    assert sum(contributions.values()) == steps * replicas, (contributions, steps)
    assert max(contributions.values()) <= steps


@pytest.fixture(scope="module")
def every_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two ps and three workers, all in every step, each with a part of the model; it has ended."""
    flags = ["--replication=sync", "--model=partition", f"--steps={STEPS}", "--batch_size=20"]
    with Cluster(tmp_path_factory.mktemp("every"), ps=2, workers=3, flags=flags) as cluster:
        cluster.start()
        cluster.codes = cluster.wait()
        yield cluster


@pytest.fixture
def ended(every_worker: Cluster, real_runs: RealRuns) -> Ended:
    """Runs of three workers by how many gradients are in a step; where these are two, one is a backup."""
    return {2: real_runs.tasks_of(SYNC), 3: every_worker}


def test_each_step_aggregates_the_requested_number_of_gradients(ended: Ended) -> None:
    for replicas, tasks in ended.items():
        finished = tasks.only("worker0", "finished")
        assert finished.text("reason") == "last step"
        assert finished.integer("global_step") == (STEPS if replicas == 3 else STEPS_OF_KINDS)
        _assert_exact(finished, replicas)
    # Without a number given, all workers are in every step.
    every = ended[3].only("worker0", "finished").integers("contributions")
    assert every == dict.fromkeys(("worker0", "worker1", "worker2"), STEPS)


def test_a_worker_offers_at_most_one_gradient_a_step(ended: Ended) -> None:
    for replicas, tasks in ended.items():
        contributions = tasks.only("worker0", "finished").integers("contributions")
        for worker, count in contributions.items():
            offered = tasks.only(worker, "finished").integer("local_step")
            assert 0 < count <= offered <= tasks.only("worker0", "finished").integer("global_step")
            windows = tasks.records(worker, "step")
            assert sum(window.integer("steps") for window in windows) == offered
            # A gradient may come too late only where a step can do without it: then by however many steps.
            if replicas == len(contributions):
                assert {window.integer("staleness_max") for window in windows} == {0}


def test_the_model_learns(every_worker: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_all_parts_found(every_worker, monkeypatch)


def test_all_tasks_end_soon_after_the_last_step(every_worker: Cluster) -> None:
    assert every_worker.codes == dict.fromkeys(every_worker.tasks, 0)
    workers = every_worker.tasks[2:]
    last_step = max(every_worker.records(worker, "step")[-1].monotonic for worker in workers)
    # TensorFlow's own way keeps the chief for 120 s.
    assert max(every_worker.ended.values()) - last_step < 60


def test_all_workers_read_the_same_final_model_and_it_is_the_saved_one(ended: Ended) -> None:
    for tasks in ended.values():
        tasks.assert_one_fingerprint("worker0", "worker1", "worker2")


def test_steps_do_not_wait_for_a_suspended_worker_if_there_is_a_backup(tmp_path: Path) -> None:
    flags = _sync(2, "--model=linear", ENDLESS)
    with Cluster(tmp_path, ps=2, workers=3, flags=flags, program=PAUSING) as cluster:
        cluster.start()
        cluster.until_steps(30)
        cluster.signal("worker2", signal.SIGSTOP)
        # If it was suspended while it sent gradients, one step is repeated, after 3 s.
        cluster.until_steps(60)
        cluster.until(lambda: cluster.progress()["missing"] == [], "the chief to miss nobody")
        counted = cluster.progress()["contributions"]
        assert isinstance(counted, list)
        cluster.signal("worker2", signal.SIGCONT)
        cluster.until(lambda: cluster.progress()["contributions"][2] > counted[2], "worker 2 to take part")  # type: ignore[index]
        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == {**dict.fromkeys(cluster.tasks, 0), "worker0": STOPPED}
        _assert_exact(cluster.only("worker0", "finished"), replicas=2)


def test_without_a_backup_steps_wait_for_a_suspended_worker_and_a_stopped_run_resumes_at_its_last_step(
    tmp_path: Path,
) -> None:
    with Cluster(tmp_path, flags=_sync(2, "--model=linear")) as cluster:
        cluster.start(flags=[ENDLESS])
        cluster.until_steps(30)
        cluster.signal("worker1", signal.SIGSTOP)
        cluster.until(lambda: cluster.progress()["phase"] == "waiting", "the chief to wait for a gradient")
        stood, since = cluster.global_step(), cluster.wall()
        missing = cluster.progress()["missing"]
        assert isinstance(missing, list)
        assert [entry["task"] for entry in missing] == ["worker1"]
        assert f"The step waits for worker1 at {cluster.hosts['worker'][1]} (" in cluster.output("worker0")
        # The chief checks four times a second and reports progress: after 2 s it has seen no step.
        cluster.until(lambda: cluster.wall() >= since + 2, "what the chief tells 2 s later, by its clock")
        assert cluster.global_step() == stood
        assert cluster.progress()["phase"] == "waiting"
        cluster.signal("worker1", signal.SIGCONT)
        cluster.until_steps(50)
        assert (cluster.progress()["phase"], cluster.progress()["missing"]) == ("training", [])

        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == {"ps0": 0, "worker0": STOPPED, "worker1": 0}
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


def _kill(cluster: Cluster, task: str) -> None:
    """Kill a task and start it again; return once it has begun, however often that was done before."""
    lives = len(cluster.records(task, "started"))
    cluster.signal(task, signal.SIGKILL)
    (cluster.directory(task) / "endings" / f"{task}.lives.json").unlink(missing_ok=True)
    cluster.start(task, program=COUNTING)
    cluster.until(lambda: len(cluster.records(task, "started")) > lives, task)


def _assert_each_step_is_applied_once(cluster: Cluster) -> None:
    """Stop a run of the counting program: the weights of every ps, and the counters, say its global step."""
    cluster.until_steps(60)
    cluster.signal("worker0", signal.SIGTERM)
    assert cluster.wait() == {**dict.fromkeys(cluster.tasks, 0), "worker0": STOPPED}
    finished = cluster.records("worker0", "finished")[-1]
    steps = finished.integer("global_step")
    assert finished.integers("contributions") == dict.fromkeys(("worker0", "worker1"), steps)
    saved, problem = read_checkpoint(cluster.directory("worker0") / f"checkpoints/model.ckpt-{steps}")
    assert saved, problem
    weights = {name: values for name, values in saved.values.items() if name.startswith("weights")}
    assert {name: set(values.tolist()) for name, values in weights.items()} == {
        name: {float(steps)} for name in ("weights0", "weights1")
    }


def test_after_a_killed_chief_and_killed_ps_each_step_is_applied_once(tmp_path: Path) -> None:
    """No backup here: a step is made once both take part again.

    A worker that is killed is one of the real runs: tests/psfleet/evidence/test_restarts.py.
    """
    with Cluster(tmp_path, ps=2, flags=_sync(2, *COUNTED)) as cluster:
        cluster.start(program=COUNTING)
        for task in ("worker0", "ps1", "ps0"):
            cluster.until_steps(60)
            _kill(cluster, task)
        _assert_each_step_is_applied_once(cluster)
        assert len(cluster.records("worker0", "restored")) >= 2


@pytest.mark.chaos
@pytest.mark.parametrize("task", ["worker0", "worker1", "ps0", "ps1"])
def test_after_twenty_kills_at_random_moments_each_step_is_applied_once(tmp_path: Path, task: str) -> None:
    moments = random.Random(task)
    with Cluster(tmp_path, ps=2, flags=_sync(2, *COUNTED)) as cluster:
        cluster.start(program=COUNTING)
        for _ in range(20):
            cluster.until_steps(30)
            time.sleep(moments.uniform(0, 0.3))
            _kill(cluster, task)
        _assert_each_step_is_applied_once(cluster)


@pytest.mark.chaos
def test_a_worker_that_dies_while_it_sends_gradients_costs_one_round(tmp_path: Path) -> None:
    with Cluster(tmp_path, flags=_sync(2, "--model=linear", "--steps=100")) as cluster:
        cluster.start("ps0", "worker0")
        cluster.start("worker1", program=[str(ROOT / "tests" / "trainer" / "dying_program.py")])
        cluster.until(lambda: cluster.global_step() == 19, "the step before the death of worker1")
        again = "worker1 stopped while it sent gradients: the step is repeated without them."
        cluster.until(lambda: again in cluster.output("worker0"), "the round to be opened anew")
        cluster.start("worker1")
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0)
        assert cluster.output("worker0").count(again) == 1
        assert cluster.progress()["restarts"] == [0, 1]
        finished = cluster.only("worker0", "finished")
        assert finished.integer("global_step") == 100
        assert finished.integers("contributions") == {"worker0": 100, "worker1": 100}
        assert cluster.only("worker1", "finished").integer("local_step") == 81


@pytest.mark.chaos
def test_a_worker_killed_while_it_waits_rejoins_through_a_ps_with_a_single_thread(
    tmp_path: Path,
) -> None:
    with Cluster(tmp_path, workers=3, flags=_sync(3, "--model=linear", ENDLESS)) as cluster:
        cluster.start("ps0", flags=["--threads=1"])
        cluster.start("worker0", "worker1", "worker2")
        cluster.until_steps(30)
        cluster.signal("worker2", signal.SIGSTOP)
        awaited = f"The step waits for worker2 at {cluster.hosts['worker'][2]} ("
        cluster.until(lambda: awaited in cluster.output("worker1"), "worker 1 to wait")
        cluster.signal("worker1", signal.SIGKILL)
        cluster.start("worker1")
        cluster.until(lambda: len(cluster.records("worker1", "peers_ready")) == 2, "worker 1 to be back")
        cluster.signal("worker2", signal.SIGCONT)
        cluster.until_steps(50)
        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == {**dict.fromkeys(cluster.tasks, 0), "worker0": STOPPED}
        _assert_exact(cluster.only("worker0", "finished"), replicas=3)


@pytest.mark.chaos
def test_a_run_with_a_permanently_lost_worker_ends_and_names_that_worker(tmp_path: Path) -> None:
    flags = _sync(2, "--model=linear", ENDLESS, "--recovery_deadline_seconds=30")
    with Cluster(tmp_path, flags=flags) as cluster:
        cluster.serve("ps0")
        cluster.start("worker0", "worker1")
        cluster.until_steps(30)
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
