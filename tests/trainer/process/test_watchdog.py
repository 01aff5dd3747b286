"""The watchdog reports a lack of progress to systemd; a long step, or one with a good reason, is no hang."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.process.watchdog import SERVING, Watchdog


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A service manager with a watchdog of 60 s, which receives the notifications of this process."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(10)
        yield listener


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock, which the test sets."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def _sign(of: Watchdog, manager: socket.socket) -> str:
    of.sign("step 1")
    first, line = manager.recv(4096).decode().splitlines()
    assert line == "STATUS=step 1"
    return first.removeprefix("WATCHDOG=")


def test_a_task_that_serves_shortens_the_watchdogs_time_of_the_unit(manager: socket.socket) -> None:
    dog = Watchdog()
    for _ in range(2):  # systemd is told once
        dog.shorten(SERVING)
    dog.shorten(1.0)
    assert manager.recv(4096) == b"WATCHDOG_USEC=15000000"
    assert manager.recv(4096) == b"WATCHDOG_USEC=60000000"


def test_a_worker_without_a_step_for_half_of_the_units_time_hangs(
    manager: socket.socket, clock: list[float]
) -> None:
    dog = Watchdog()
    clock[0] += 1000  # at the barrier
    assert _sign(dog, manager) == "1"
    dog.begin_steps()
    assert manager.recv(4096) == b"WATCHDOG_USEC=30000000"
    clock[0] += 500  # the first step
    assert _sign(dog, manager) == "1"
    dog.begin_steps()
    for _ in range(3):
        clock[0] += 1
        dog.step()
    clock[0] += 29
    assert _sign(dog, manager) == "1"
    clock[0] += 2
    assert _sign(dog, manager) == "trigger"
    dog.excuse()
    assert _sign(dog, manager) == "1"
    clock[0] += 31
    assert _sign(dog, manager) == "trigger"
    dog.end_steps()
    assert manager.recv(4096) == b"WATCHDOG_USEC=60000000"
    assert _sign(dog, manager) == "1"


def test_a_worker_with_long_steps_gets_more_time(manager: socket.socket, clock: list[float]) -> None:
    dog = Watchdog()
    dog.begin_steps()
    manager.recv(4096)
    clock[0] += 20
    dog.step()
    clock[0] += 199
    assert _sign(dog, manager) == "1"
    clock[0] += 2
    assert _sign(dog, manager) == "trigger"


def test_no_worker_counts_as_hung_without_a_watchdog(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    dog = Watchdog()
    dog.begin_steps()
    dog.step()
    clock[0] += 1e6
    assert not dog.hangs
