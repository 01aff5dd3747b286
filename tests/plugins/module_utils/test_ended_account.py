"""Processes of an account of this test's own: other hosts may be containers of this machine."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plugins.module_utils import ended_account
from plugins.module_utils.ended_account import end_all, processes_of, remove_schedules

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root is another user, and ends its processes")
USER = 1_100_000_000 + os.getpid()
AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
# Each process ends at once after it has started another, so killing a listed process is too late. After a
# minute they end by themselves, whatever happens to the test.
HOPS = """
import os, time
end = time.monotonic() + 60
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
"""
LOOKS_DEAD = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).syscall(60, 0)
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return a function that starts a process which ends with the test."""
    begun: list[subprocess.Popen[bytes]] = []

    def starting(*command: str) -> subprocess.Popen[bytes]:
        begun.append(subprocess.Popen(command, start_new_session=True))
        return begun[-1]

    yield starting
    for process in begun:
        process.kill()
    ended_account.kill_all([*processes_of(USER)], USER, at_once=os.geteuid() == 0)
    for process in begun:
        process.wait()


def wait_for(met: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def names() -> list[str]:
    return [process.name for process in processes_of(USER)]


def looks_dead() -> bool:
    return any("\nState:\tZ" in Path(f"/proc/{each.pid}/status").read_text() for each in processes_of(USER))


@as_root
def test_all_processes_of_an_account_are_ended_and_no_others(
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    mine = start("sleep", "600")
    start(*AS_USER, "setsid", "sleep", "601")
    hops = start(*AS_USER, "/usr/bin/python3", "-c", HOPS)
    start(*AS_USER, "/usr/bin/python3", "-c", LOOKS_DEAD)
    # As root of its own user namespace the process still has the number of the account.
    start(*AS_USER, "unshare", "--user", "--map-root-user", "--pid", "--fork", "sleep", "602")
    wait_for(lambda: names().count("sleep") == 2 and hops.poll() == 0 and looks_dead())
    ended = end_all("lab", USER)
    assert len([line for line in ended if line.endswith("(sleep)")]) == 2
    assert mine.poll() is None
    assert [names() for _ in range(20)] == [[]] * 20  # the one that hops is not seen each time


@as_root
def test_processes_in_a_container_with_the_same_user_id_keep_running(
    start: Callable[..., subprocess.Popen[bytes]],
) -> None:
    contained = start("unshare", "--pid", "--fork", *AS_USER, "sleep", "600")
    start(*AS_USER, "sleep", "601")
    wait_for(lambda: names() == ["sleep", "sleep"])
    assert len(end_all("lab", USER)) == 1
    assert [process.is_contained for process in processes_of(USER)] == [True]
    assert contained.poll() is None


@as_root
def test_a_process_that_does_not_end_is_named(
    start: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_account, "TRIES", 2)
    monkeypatch.setattr(ended_account, "kill_all", lambda *_, **__: None)
    process = start(*AS_USER, "sleep", "600")
    wait_for(lambda: names() == ["sleep"])
    with pytest.raises(ValueError, match=f"processes of lab do not end: process {process.pid} \\(sleep\\)"):
        end_all("lab", USER)


@as_root
def test_a_crontab_written_while_the_processes_are_ended_is_removed(
    start: Callable[..., subprocess.Popen[bytes]], open_folder: Path
) -> None:
    crontab = open_folder / "var/spool/cron/crontabs/lab"
    crontab.parent.mkdir(parents=True)
    crontab.parent.chmod(0o777)
    start(*AS_USER, "sh", "-c", f"while :; do echo >> {crontab}; done")
    wait_for(crontab.exists)
    assert str(crontab) in end_all("lab", USER, open_folder)
    assert not crontab.exists()


def test_scheduled_jobs_and_lingering_of_an_account_are_removed_and_no_others(tmp_path: Path) -> None:
    kept = [tmp_path / "var/spool/cron/crontabs/alice", tmp_path / "var/lib/systemd/linger/alice"]
    gone = [path.with_name("lab") for path in kept]
    gone += [tmp_path / "var/spool/cron/atjobs/a0000101c0c5a3", tmp_path / "var/spool/at/a0000101c0c5a3"]
    for path in (*kept, *gone):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "var/spool/cron/lab").mkdir()
    assert sorted(remove_schedules("lab", os.geteuid(), tmp_path)) == sorted(map(str, gone))
    assert [path for path in (*kept, *gone) if path.exists()] == kept
    (tmp_path / "var/spool/at/other").touch()
    assert [*remove_schedules("lab", os.geteuid() + 1, tmp_path)] == []


def test_ending_processes_of_root_is_refused() -> None:
    with pytest.raises(ValueError, match="lab has the user id of root"):
        end_all("lab", 0)
