"""Both barriers wait for all living tasks, and not long for a lost one."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

import pytest
import tensorflow as tf

from tests.psfleet.evidence.adversaries.pace import Pace
from tests.trainer.ports import free_ports
from tests.trainer.processes import Cluster
from trainer.contract.exit_codes import DIVERGED, STOPPED
from trainer.contract.records import RecordWriter
from trainer.coordination import end_barrier, start_barrier
from trainer.coordination.end_barrier import EndBarrier
from trainer.coordination.ledger import AT_START, LEAVING, REPORTED, RUN_OVER, SIGNED_OFF, Ledger, OwnPart
from trainer.coordination.running_task import RunningTask
from trainer.coordination.start_barrier import Barrier
from trainer.process import flags
from trainer.process.cluster import Cluster as ClusterOfTask
from trainer.process.failure import RunEnding, StopRequested

v1 = tf.compat.v1

PS, *WORKERS = [f"127.0.0.1:{port}" for port in free_ports(4)]
SOON = 0.2


@dataclass
class _Workers:
    """Three workers of a ps in this process: the task of worker 0, and the ledger of each."""

    task: RunningTask
    ledgers: list[Ledger]

    @property
    def barrier(self) -> EndBarrier:
        return EndBarrier(self.task, self.ledgers[0])


@pytest.fixture(scope="module")
def servers() -> dict[str, tf.compat.v1.train.Server]:
    places = [("ps", 0), *(("worker", index) for index in range(3))]
    jobs = tf.train.ClusterSpec({"ps": [PS], "worker": WORKERS})
    return {f"{job}{index}": v1.train.Server(jobs, job_name=job, task_index=index) for job, index in places}


@pytest.fixture
def workers(
    servers: dict[str, tf.compat.v1.train.Server], monkeypatch: pytest.MonkeyPatch
) -> Iterator[_Workers]:
    """Workers 0 and 1 have reported; worker 2 was never there."""
    monkeypatch.setattr(end_barrier, "_SIGN_OFF_SECONDS", 5 * SOON)
    part = OwnPart(servers["ps0"].target, ClusterOfTask("ps", 0, (PS,), tuple(WORKERS)))
    part.create({"nonce": 1})
    addresses = [f"--ps_hosts={PS}", f"--worker_hosts={','.join(WORKERS)}"]
    options = flags.parse(["--job_name=worker", "--task_index=0", *addresses, "--run_id=test"])
    ledgers = []
    for index in range(3):
        cluster = ClusterOfTask("worker", index, (PS,), tuple(WORKERS))
        ledgers.append(Ledger(servers[f"worker{index}"].target, cluster))
    for ledger in ledgers[:2]:
        ledger.report({"nonce": 1})
        ledger.mark(AT_START)
    yield _Workers(RunningTask(options, RecordWriter(None, options.identity)), ledgers)
    for session in (part, *ledgers):
        session.close()


@contextmanager
def _soon(function: Callable[[], object]) -> Iterator[None]:
    """Call it in a while; leaving waits until that is done."""
    timer = Timer(SOON, function)
    timer.start()
    yield
    timer.join()


def test_the_barrier_ends_once_the_other_worker_has_signed_off_and_ignores_a_worker_that_never_joined(
    workers: _Workers, capsys: pytest.CaptureFixture[str]
) -> None:
    with _soon(lambda: workers.ledgers[1].mark(SIGNED_OFF)):
        assert workers.barrier.wait_for_last_steps(60.0)
        assert workers.ledgers[2].marks().at(SIGNED_OFF) == [0, 1]
    assert capsys.readouterr().out == ""


def test_the_barrier_waits_for_a_lost_worker_as_long_as_a_few_steps_take(
    workers: _Workers, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    # Its port answers: it may yet take a step.
    assert not workers.barrier.wait_for_last_steps(0.0)
    assert time.monotonic() - began >= 5 * SOON
    assert "Ending without waiting longer for worker1.\n" in capsys.readouterr().out
    began = time.monotonic()
    assert not workers.barrier.wait_for_last_steps(seconds_per_step=SOON)
    assert time.monotonic() - began >= 10 * SOON


def test_a_waiting_worker_ends_with_the_failure_of_the_run(workers: _Workers) -> None:
    def fail() -> None:
        workers.ledgers[1].request_stop(DIVERGED, "worker1: loss is nan")
        workers.ledgers[1].mark(SIGNED_OFF)

    with _soon(fail), pytest.raises(RunEnding) as ending:
        workers.barrier.wait_for_last_steps(60.0)
    assert (ending.value.code, ending.value.reason) == (DIVERGED, "worker1: loss is nan")


def test_a_waiting_worker_ends_when_the_chief_stops_the_run(workers: _Workers) -> None:
    workers.ledgers[1].request_stop(STOPPED, "the chief was told to stop")
    with pytest.raises(RunEnding) as ending:
        workers.barrier.wait_for_last_steps(60.0)
    assert ending.value.code == STOPPED


def test_a_waiting_worker_does_not_read_from_ps_that_were_ended(workers: _Workers) -> None:
    workers.ledgers[1].end(RUN_OVER)
    assert not workers.barrier.wait_for_last_steps(60.0)


def test_a_waiting_worker_ends_at_a_stop_request(workers: _Workers) -> None:
    with _soon(workers.task.stop.set), pytest.raises(StopRequested):
        workers.barrier.wait_for_last_steps(60.0)


def test_the_barrier_waits_only_for_readers(workers: _Workers, capsys: pytest.CaptureFixture[str]) -> None:
    # Worker 1 has not signed off: it was lost, and all have waited for it already.
    workers.barrier.wait_for_readers(60.0)
    workers.ledgers[1].mark(SIGNED_OFF)
    with _soon(lambda: workers.ledgers[1].mark(LEAVING)):
        workers.barrier.wait_for_readers(60.0)
        assert workers.ledgers[2].marks().at(LEAVING) == [1]
    assert capsys.readouterr().out == ""


def test_the_barrier_waits_for_a_lost_reader_as_long_as_a_reading_may_take(
    workers: _Workers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(end_barrier, "SECONDS_TO_READ", 6 * SOON)
    workers.ledgers[1].mark(SIGNED_OFF)
    began = time.monotonic()
    workers.barrier.wait_for_readers(60.0)
    assert 6 * SOON <= time.monotonic() - began < 60
    assert "Ending without waiting longer for worker1.\n" in capsys.readouterr().out


def test_workers_line_up_before_the_first_step_and_do_not_wait_long_for_a_lost_one(
    workers: _Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    barrier = Barrier(workers.task)
    workers.ledgers[1].mark(REPORTED)
    with _soon(lambda: workers.ledgers[1].mark(AT_START)):
        barrier.line_up(workers.ledgers[0])
        assert workers.ledgers[2].marks().at(AT_START) == [0, 1]
    monkeypatch.setattr(start_barrier, "_SECONDS_TO_LINE_UP", SOON)
    workers.ledgers[1].mark(REPORTED)
    barrier.line_up(workers.ledgers[0])
    assert workers.ledgers[2].marks().at(AT_START) == [0]


def test_a_killed_worker_does_not_delay_the_end_of_the_others(tmp_path: Path) -> None:
    with Cluster(tmp_path, workers=3, flags=["--model=linear", "--steps=400"]) as cluster:
        cluster.start("ps0", "worker0", "worker1")
        cluster.start("worker2", program=Pace(kills_itself_at=1).program)
        killed = -signal.SIGKILL
        assert cluster.wait() == {**dict.fromkeys(cluster.tasks, 0), "worker2": killed}
        left = ("worker0", "worker1")
        for worker in left:
            assert "Ending without waiting longer for worker2." in cluster.output(worker)
        cluster.assert_one_fingerprint(*left)
        assert cluster.progress()["restarts"] == [0, 0, 0]


def test_no_fingerprint_is_taken_while_a_suspended_worker_may_still_take_a_step(tmp_path: Path) -> None:
    with Cluster(tmp_path, flags=["--model=linear", "--steps=400", "--steps_per_call=1"]) as cluster:
        cluster.start("ps0", "worker0")
        cluster.start("worker1", program=Pace(stops_itself_at=20).program)
        assert cluster.wait("ps0", "worker0") == {"ps0": 0, "worker0": 0}
        assert "Ending without waiting longer for worker1." in cluster.output("worker0")
        assert "fingerprint" not in cluster.only("worker0", "finished").fields
        assert cluster.records("worker0", "checkpointed")
