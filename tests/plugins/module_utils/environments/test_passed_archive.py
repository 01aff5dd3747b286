"""An archive from neighbours: the programs run on this machine as SSH would start them elsewhere."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from plugins.module_utils.environments import login_commands, passed_archive
from plugins.module_utils.environments.passed_archive import Archive, NoNeighbourError, ssh_give_command, take
from psfleet.carry.fan_out import parts_of

HASH = "0123456789ab"
SIZE = 3_500_000  # four parts, the last one smaller
CONTENT = os.urandom(SIZE)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / f".archive-{HASH}"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def archive(source: Path) -> Archive:
    return Archive(**parts_of(source))


@pytest.fixture(autouse=True)
def _no_patience_for_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_archive, "SECONDS_TO_SAY_WHY", 0.5)


def given(environments: Path, silent: int = 60) -> Callable[[str, int], list[str]]:
    """Return the command by which a neighbour sends an archive, as sshd would run it for a host."""

    def giving(name: str, offset: int) -> list[str]:
        asked = ssh_give_command("psfleet-ssh", HASH, SIZE)(name, offset)[-1]
        return asked_of(environments, f"{asked.rpartition(' ')[0]} {silent}")

    return giving


def asked_of(environments: Path, asked: str, *may: str) -> list[str]:
    """Return the command that sshd runs for a requested command."""
    program = (sys.executable, "-I", "-S", login_commands.__file__, str(environments), *may)
    return ["env", f"SSH_ORIGINAL_COMMAND={asked}", *program]


def by_name(neighbours: Mapping[str, str], path: Path) -> Callable[[str, int], list[str]]:
    """Return the command of each neighbour: a shell script, or psfleet's own program for ""."""
    return lambda name, offset: (
        ["sh", "-c", neighbours[name], name, str(path), str(offset)]
        if neighbours[name]
        else given(path.parent)(name, offset)
    )


def test_a_neighbour_sends_its_archive(archive: Archive, tmp_path: Path) -> None:
    take(archive, tmp_path / "taken", ["node1"], given(tmp_path))
    assert (tmp_path / "taken").read_bytes() == CONTENT


def test_a_neighbour_forwards_the_parts_of_an_archive_that_it_still_receives(
    archive: Archive, tmp_path: Path
) -> None:
    middle, taken = tmp_path / f".archive-{HASH}", tmp_path / "taken"
    taking = threading.Thread(target=take, args=(archive, taken, ["node2"], given(tmp_path)))
    taking.start()
    with middle.open("wb") as file:
        for offset in range(0, SIZE, archive.part_bytes):
            file.write(CONTENT[offset : offset + archive.part_bytes])
            file.flush()
            goes_on = True
            while not taken.exists() or taken.stat().st_size < file.tell():
                assert goes_on
                goes_on = taking.is_alive()
    taking.join()
    assert taken.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("echo 'ssh: connect to host node2: Connection refused' >&2; exit 255", "Connection refused"),
        ('tail -c +$(($2 + 1)) "$1" | head -c 1500000', "it ended after 1048576 of 3500000 bytes"),
        ("head -c 1048576 /dev/zero", "what it sent is damaged, or not part of this archive"),
        ("exec >&-; sleep 1000", "it ended after 0 of 3500000 bytes"),
    ],
)
def test_if_a_neighbour_fails_the_next_one_sends_the_rest(
    archive: Archive, source: Path, tmp_path: Path, program: str, why: str
) -> None:
    neighbours = {"node2": program, "node1": ""}
    take(archive, tmp_path / "taken", list(neighbours), by_name(neighbours, source))
    assert (tmp_path / "taken").read_bytes() == CONTENT
    with pytest.raises(NoNeighbourError, match=f"node2: .*{why}"):
        take(archive, tmp_path / "again", ["node2"], by_name(neighbours, source))


def test_a_neighbour_that_sends_nothing_is_abandoned_and_leaves_no_process(
    archive: Archive, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passed_archive, "SILENT_SECONDS", 1)
    drips, before = 'while :; do head -c 10 "$1"; sleep 0.01; done', children()
    with pytest.raises(NoNeighbourError, match="node1: it sent nothing for 1 s"):
        take(archive, tmp_path / "taken", ["node1"], by_name({"node1": drips}, source))
    assert not (tmp_path / "taken").read_bytes()
    assert children() == before


def children() -> set[str]:
    """Return the processes that this one has started."""
    listed = Path("/proc/self/task").glob("*/children")
    return {child for path in listed for child in path.read_text(encoding="ascii").split()}


def test_an_existing_file_is_not_overwritten(archive: Archive, source: Path) -> None:
    with pytest.raises(FileExistsError):
        take(archive, source, ["node1"], given(source.parent))


def test_a_neighbour_reports_at_once_that_it_removed_its_archive(tmp_path: Path) -> None:
    (tmp_path / HASH).mkdir()
    (tmp_path / HASH / ".complete").touch()
    command = given(tmp_path, silent=99)("node1", 0)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "it has installed the archive, and no longer keeps it\n")


def test_a_neighbour_waits_for_a_missing_archive_no_longer_than_requested(tmp_path: Path) -> None:
    done = subprocess.run(given(tmp_path, silent=0)("node1", 0), capture_output=True, check=False)
    assert done.stdout == b""


def test_a_login_gives_to_a_limited_number_of_hosts_at_once(tmp_path: Path) -> None:
    command = given(tmp_path, silent=99)("node1", 0)
    waiting = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(login_commands.MOST_SESSIONS)
    ]
    try:
        ours = [Path(f"/proc/{process.pid}/cmdline") for process in waiting]
        deadline = time.monotonic() + 60
        while not all(b"login_commands" in b"".join(path.read_bytes().split(b"\0")[3:4]) for path in ours):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        more = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (more.returncode, more.stdout) == (1, "")
        assert "16 hosts take archives from here already" in more.stderr
        asked = subprocess.run(asked_of(tmp_path, "hostname"), capture_output=True, text=True, check=False)
        assert asked.returncode == 0
        waiting[0].kill()
        waiting[0].wait()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as next_one:
            with pytest.raises(subprocess.TimeoutExpired):
                next_one.wait(2)
            next_one.kill()
    finally:
        for process in waiting:
            process.kill()
            process.communicate()


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(
    "asked",
    [
        *(
            "",
            "sh",
            "hostname; id",
            "hostname\nid",
            "cat /etc/psfleet/ssh/.ssh/id_ed25519",
            "/usr/lib/sftp-server",
        ),
        *(f"give ../{HASH} 1 0 1", f"give {HASH} 1 0 1; id", f"give {HASH} 1 0 1\n", f"give {HASH} -1 0 1"),
        *(f"give {HASH} 1 0 999", f"give {HASH} {'9' * 16} 0 1", f"give {HASH} 1 \u0661 1"),
    ],
)
def test_a_login_refuses_any_other_command_with_advice(tmp_path: Path, asked: str) -> None:
    done = subprocess.run(asked_of(tmp_path, asked), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "what a deployment needs, and `hostname`. For a shell, set ssh_mesh_shell: true" in done.stderr


def test_a_login_prints_its_hostname_and_gets_a_shell_only_if_allowed(tmp_path: Path) -> None:
    def printed(asked: str, *may: str) -> str:
        command = asked_of(tmp_path, asked, *may)
        return subprocess.run(command, input="echo typed", capture_output=True, text=True, check=True).stdout

    assert printed("hostname") == printed("hostname", "shell") == f"{socket.gethostname()}\n"
    assert printed("echo a; echo b", "shell") == "a\nb\n"
    assert printed("", "shell") == "typed\n"
