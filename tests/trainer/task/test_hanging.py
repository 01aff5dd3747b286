"""A call that TensorFlow never finishes ends only its session; a call that takes long ends nothing."""

import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from tests.trainer.held_program import NEVER, held_at, program_at
from tests.trainer.processes import PAUSING, Cluster
from trainer.contract.exit_codes import CLUSTER_BROKE, STOPPED

# A step is a call, so that each can be held.
LINEAR = ["--model=linear", "--steps=400", "--steps_per_call=1"]
ENDLESS = ["--model=linear", "--steps=1000000", "--steps_per_call=1"]


def _until_told_for(cluster: Cluster, seconds: float) -> None:
    """Wait until the chief has reported for this time that it is alive."""
    since = cluster.wall()
    cluster.until(lambda: cluster.wall() >= since + seconds, "what the chief tells meanwhile", 60)


def test_a_worker_in_a_step_that_never_returns_rejoins_after_the_loss_of_its_ps(tmp_path: Path) -> None:
    flags = [*ENDLESS, "--checkpoint_interval_seconds=0.5"]
    with Cluster(tmp_path, flags=flags, program=PAUSING) as cluster:
        cluster.start("ps0", "worker0")
        cluster.start("worker1", program=program_at("step", NEVER))
        cluster.until(lambda: held_at("step") in cluster.output("worker1"), "worker 1 to hang")
        cluster.until(lambda: len(cluster.records("worker0", "checkpointed")) > 1, "two checkpoints")
        cluster.signal("ps0", signal.SIGKILL)
        cluster.start("ps0")
        for worker in ("worker0", "worker1"):
            cluster.until(lambda of=worker: len(cluster.records(of, "peers_ready")) > 1, worker)  # type: ignore[misc]
        counted = cluster.progress()["contributions"]
        assert isinstance(counted, list)
        cluster.until(lambda: cluster.progress()["contributions"][1] > 0, "steps of worker 1")  # type: ignore[index]
        cluster.signal("worker0", signal.SIGTERM)
        assert cluster.wait() == {"ps0": 0, "worker0": STOPPED, "worker1": 0}
        assert len(cluster.records("worker1", "started")) == 1
        # The 19 steps before the hang and those of the second session are all recorded.
        windows = cluster.records("worker1", "step")
        taken = cluster.only("worker1", "finished").integer("local_step")
        assert sum(window.integer("steps") for window in windows) == taken > 19


@contextmanager
def _stopped_ps(directory: Path, deadline_seconds: int) -> Iterator[Cluster]:
    """Yield a run with a ps that hangs and one worker that waits for it up to the deadline."""
    flags = [*ENDLESS, f"--barrier_deadline_seconds={deadline_seconds}", "--recovery_deadline_seconds=4"]
    with Cluster(directory, workers=1, flags=flags) as cluster:
        cluster.serve("ps0")
        cluster.start("worker0")
        cluster.until_steps(30)
        cluster.signal("ps0", signal.SIGSTOP)
        yield cluster


@pytest.mark.chaos
def test_workers_leave_a_ps_that_hangs_and_return_once_it_answers(tmp_path: Path) -> None:
    with _stopped_ps(tmp_path, 30) as cluster:
        cluster.until(lambda: bool(cluster.records("worker0", "recovering")), "the worker to leave the ps")
        cluster.signal("ps0", signal.SIGCONT)
        assert "ps0 has not answered for " in cluster.only("worker0", "recovering").text("reason")
        cluster.until(lambda: len(cluster.records("worker0", "peers_ready")) > 1, "the worker to be back")
        first, again = cluster.records("worker0", "peers_ready")
        assert again.integers("ps_nonces") == first.integers("ps_nonces")
        assert again.integer("global_step") >= 30
        cluster.until_steps(30)


@pytest.mark.chaos
def test_a_ps_that_hangs_for_ever_ends_the_run_as_cluster_broke(tmp_path: Path) -> None:
    with _stopped_ps(tmp_path, 4) as cluster:
        assert cluster.wait("worker0") == {"worker0": CLUSTER_BROKE}
        failed = cluster.only("worker0", "failed")
        assert failed.text("class") == "cluster_broke"
        assert f"s for ps0 at {cluster.hosts['ps'][0]} (" in failed.text("reason")


@pytest.mark.chaos
def test_no_task_gives_up_while_the_chief_creates_the_variables(tmp_path: Path) -> None:
    release = tmp_path / "release"
    with Cluster(tmp_path, flags=[*LINEAR, "--barrier_deadline_seconds=5"]) as cluster:
        cluster.start("ps0", program=program_at("nowhere", NEVER))  # 10 s without a chief, and it gives up
        cluster.until(lambda: "listens at" in cluster.output("ps0"), "the ps")
        cluster.start("worker0", program=program_at("create", release))
        cluster.start("worker1")
        cluster.until(lambda: held_at("create") in cluster.output("worker0"), "the chief to be held")
        _until_told_for(cluster, 12)
        release.touch()
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0)
        assert cluster.only("worker1", "peers_ready").number("waited_seconds") > 10


def test_the_last_evaluation_may_take_long(tmp_path: Path) -> None:
    release = tmp_path / "release"
    with Cluster(tmp_path, workers=1, flags=LINEAR) as cluster:
        cluster.start("ps0")
        cluster.start("worker0", program=program_at("end", release))
        cluster.until(lambda: held_at("end") in cluster.output("worker0"), "the chief to be held")
        _until_told_for(cluster, 2)
        release.touch()
        assert cluster.wait() == dict.fromkeys(cluster.tasks, 0)


@pytest.fixture
def told_to_manager(tmp_path: Path) -> Iterator[list[bytes]]:
    """What tasks tell a service manager that listens at `notify`."""
    told = [b""]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))

        def listen() -> None:
            while told[-1] != b"the end":
                told.append(listener.recv(4096))

        thread = Thread(target=listen)
        thread.start()
        yield told
        listener.sendto(b"the end", str(tmp_path / "notify"))
        thread.join()


def test_a_worker_in_a_hanging_step_triggers_the_watchdog_and_prints_its_stacks(
    tmp_path: Path, told_to_manager: list[bytes]
) -> None:
    with Cluster(tmp_path, workers=1, flags=ENDLESS) as cluster:
        cluster.start("ps0")
        cluster.environment |= {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "10000000"}
        cluster.start("worker0", program=program_at("step", NEVER))
        cluster.until(lambda: held_at("step") in cluster.output("worker0"), "worker 0 to hang")
        cluster.until(lambda: any(b"WATCHDOG=trigger" in told for told in told_to_manager), "a word of it")
        assert b"WATCHDOG_USEC=5000000" in told_to_manager
        cluster.signal("worker0", signal.SIGABRT)  # what systemd does then
        assert cluster.wait("worker0") == {"worker0": -signal.SIGABRT}
        printed = cluster.output("worker0")
        assert "Fatal Python error: Aborted" in printed
        assert re.search(r'held_program.py", line \d+ in _hold\n', printed)


@pytest.mark.chaos
def test_a_save_after_sigterm_may_take_longer_than_the_unit_grants(
    tmp_path: Path, told_to_manager: list[bytes]
) -> None:
    release = tmp_path / "release"
    with Cluster(tmp_path, workers=1, flags=ENDLESS) as cluster:
        cluster.start("ps0", program=program_at("nowhere", NEVER))  # 2 s after a stop it gives the chief up
        cluster.environment["NOTIFY_SOCKET"] = str(tmp_path / "notify")
        cluster.start("worker0", program=program_at("save", release))  # ended 1 s after SIGTERM
        cluster.until_steps(30)
        cluster.signal("worker0", signal.SIGTERM)
        cluster.until(lambda: held_at("save") in cluster.output("worker0"), "the chief to save")
        _until_told_for(cluster, 6)
        assert told_to_manager.count(b"EXTEND_TIMEOUT_USEC=30000000") > 6
        release.touch()
        assert cluster.wait() == {"ps0": 0, "worker0": STOPPED}
        saved = cluster.records("worker0", "checkpointed")[-1].integer("global_step")
        assert cluster.only("worker0", "finished").integer("global_step") == saved >= 30


def test_a_worker_that_loses_its_ps_six_times_without_a_step_ends_as_cluster_broke(tmp_path: Path) -> None:
    with Cluster(tmp_path, workers=1, flags=LINEAR) as cluster:
        cluster.start("ps0")
        cluster.start("worker0", program=program_at("step", 6))
        assert cluster.wait("worker0") == {"worker0": CLUSTER_BROKE}
        failed = cluster.only("worker0", "failed")
        assert failed.text("class") == "cluster_broke"
        assert "6 losses of tasks without a step in between" in failed.text("reason")
        assert "lost by the test" in failed.text("reason")
        assert len(cluster.records("worker0", "recovering")) == 5


def test_the_loss_of_a_task_leaves_no_session_open(tmp_path: Path) -> None:
    with Cluster(tmp_path, workers=1, flags=LINEAR) as cluster:
        cluster.start("ps0")
        cluster.start("worker0", program=program_at("create,line_up,step", 1))
        assert cluster.wait() == {"ps0": 0, "worker0": 0}
        assert "Open sessions: 2\n" in cluster.output("worker0")
        losses = re.findall(r"^Lost at (\w+)$", cluster.output("worker0"), re.MULTILINE)
        assert sorted(losses) == ["create", "line_up", "step"]
