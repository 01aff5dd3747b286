"""What a process uses is recorded: its CPU time, its waits for a core, and the moments with work."""

import hashlib
import math
import os
import threading
import time
from pathlib import Path

import pytest

from trainer.contract.records import Record, RecordWriter, TaskIdentity, read_records
from trainer.process import resources
from trainer.process.resources import ResourceUse

CPU_SECONDS = 0.3
SAMPLES = 100


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "worker0.jsonl"


@pytest.fixture
def use(file: Path) -> ResourceUse:
    return ResourceUse(RecordWriter(file, TaskIdentity("run", "worker", 0)))


def records(file: Path) -> list[Record]:
    found, complaints = read_records(file)
    assert complaints == []
    return found


def compute(seconds: float) -> None:
    """Use so much CPU time, however long that takes."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_the_use_between_begin_and_end_is_recorded(use: ResourceUse, file: Path) -> None:
    compute(CPU_SECONDS)  # before it begins, so not recorded
    began, cpu = time.monotonic(), time.process_time()
    use.begin()
    use.begin()
    compute(CPU_SECONDS)
    use.end()
    use.end()
    compute(CPU_SECONDS)
    took, used = time.monotonic() - began, time.process_time() - cpu
    [record] = records(file)
    assert record.event == "resources"
    assert CPU_SECONDS <= record.number("cpu_seconds") <= used - CPU_SECONDS
    assert CPU_SECONDS <= record.number("seconds") <= took
    assert record.integer("cores") == len(os.sched_getaffinity(0))


def test_time_without_a_core_is_recorded(use: ResourceUse, file: Path) -> None:
    """Two processes compute on one core: what one of them does not get, it waits for."""
    measured = os.fork()  # it has no other threads, whose waits would count, too
    if not measured:
        try:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            use.begin()
            other = os.fork()
            compute(CPU_SECONDS)
            if other:
                os.waitpid(other, 0)
                use.end()
        finally:
            os._exit(0)
    os.waitpid(measured, 0)
    [record] = records(file)
    without = record.number("seconds") - record.number("cpu_seconds")
    assert 0.1 <= record.number("core_wait_seconds") <= without + 0.05


def test_a_thread_that_computes_is_work(
    use: ResourceUse, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_SECONDS_OF_A_RECORD", math.inf)
    stop, block = threading.Event(), bytes(10**7)

    def work() -> None:
        while not stop.is_set():
            hashlib.sha256(block)  # without the interpreter's lock

    thread = threading.Thread(target=work)
    thread.start()
    use.begin()
    for _ in range(SAMPLES):
        use.sample()
    use.end()
    stop.set()
    thread.join()
    [record] = records(file)
    assert record.integer("samples") == SAMPLES
    assert record.integer("active_samples") > 0


@pytest.mark.parametrize(("state", "active"), [("R", 1), ("S", 0), ("D", 0), ("", 0)])
def test_only_a_thread_that_runs_or_is_ready_is_work(
    state: str, active: int, use: ResourceUse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for thread, of_thread in (("7", state), (str(threading.get_native_id()), "R")):
        (tmp_path / "task" / thread).mkdir(parents=True)
        (tmp_path / "task" / thread / "schedstat").write_text("0 0 0\n")
        (tmp_path / "task" / thread / "stat").write_text(f"7 (R) R) {of_thread} 1 1\n")
    monkeypatch.setattr(resources, "_THREADS", tmp_path / "task")
    use.begin()
    use.sample()
    use.end()
    [record] = records(tmp_path / "worker0.jsonl")
    assert (record.integer("samples"), record.integer("active_samples")) == (1, active)
    # Such a kernel does not measure the waits, which is no proof that there are none.
    assert "core_wait_seconds" not in record.fields


def test_a_long_time_is_recorded_in_parts(
    use: ResourceUse, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use.sample()  # nothing has begun
    monkeypatch.setattr(resources, "_SECONDS_OF_A_RECORD", 0.0)
    use.begin()
    for _ in range(3):
        use.sample()
    use.end()
    assert [record.integer("samples") for record in records(file)] == [1, 1, 1, 0]


def test_without_a_list_of_threads_there_are_no_moments(
    use: ResourceUse, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_THREADS", tmp_path / "none")
    use.begin()
    use.sample()
    use.end()
    [record] = records(file)
    assert record.integer("samples") == 0
    assert "core_wait_seconds" not in record.fields
