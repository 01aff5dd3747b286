"""A login is proven again only after a change. Molecule's container hosts show that sshd is reloaded."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plugins.module_utils.login_proof import proof_holds
from plugins.modules import ssh_login
from tests.plugins.modules.module_run import module_answer


@pytest.fixture
def folder(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of root with files that sshd reads; each end of the account's processes is noted there.

    The end of real processes is tested in test_ended_account.py.
    """

    def end(user: str, running: list[str]) -> list[str]:
        with (open_folder / "ended").open("a") as file:
            file.write(f"{user}\n")
        return running

    monkeypatch.setattr(ssh_login, "end_of", end)
    monkeypatch.setattr(
        ssh_login, "running_of", lambda _user: [f"process {number} (sleep)" for number in range(6)]
    )
    (open_folder / "revoked.krl").write_text("of nobody")
    (open_folder / "cert.pub").write_text("a")
    return open_folder


def logged_in(
    folder: Path, *, fails: str = "", check: bool = False, login: Sequence[str] = ()
) -> tuple[dict[str, Any], int]:
    """Run the module; return its answer, and how often it has logged in."""
    program = f"echo x >> {folder}/calls; " + (f"echo '{fails}' >&2; exit 1" if fails else "exit 0")
    answer = module_answer(
        ssh_login,
        check=check,
        service="psfleet-no-such",
        directory=str(folder / "sshd_config.d"),
        login=login or ["sh", "-c", program],
        files=[str(folder / "cert.pub")],
        admits=[str(folder / "revoked.krl")],
        proven=str(folder / "proven"),
        user="psfleet-ssh",
        host="node1",
        port=2201,
    )
    calls = folder / "calls"
    return answer, len(calls.read_text().splitlines()) if calls.exists() else 0


def test_a_login_is_proven_once_and_again_after_a_file_has_changed(folder: Path) -> None:
    assert [logged_in(folder)[1] for _ in range(3)] == [1, 1, 1]
    (folder / "new").write_text("a")
    (folder / "new").rename(folder / "cert.pub")
    answer, calls = logged_in(folder)
    assert (answer["proven"], answer["changed"], calls) == (True, False, 2)
    (folder / "cert.pub").unlink()
    assert logged_in(folder)[1] == 3


def test_a_failed_login_is_retried_and_not_noted_as_proven(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_login, "TRIES", 2)
    answer, calls = logged_in(folder, fails="Permission denied (publickey).")
    assert answer["failed"]
    assert "psfleet-ssh cannot log in from node1 to itself: Permission denied (publickey)." in answer["msg"]
    assert "AllowUsers" in answer["msg"]
    assert "ssh_mesh_port" not in answer["msg"]
    assert calls == 2
    assert not (folder / "proven").exists()
    assert logged_in(folder)[1] == 3


@pytest.mark.parametrize(
    ("address", "says"),
    [("127.0.0.1", "Connection refused"), ("no-such-host.invalid", "Could not resolve hostname")],
)
def test_a_login_without_an_sshd_names_the_variables_and_their_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, address: str, says: str
) -> None:
    monkeypatch.setattr(ssh_login, "TRIES", 1)
    # Nothing listens at port 1, and no resolver answers a name below "invalid".
    answer, _ = logged_in(folder, login=["ssh", "-n", "-F", "none", "-p", "1", address, "hostname"])
    what, remedy = answer["msg"].split("\n")
    assert says in what
    assert remedy == (
        "No sshd answers there: set ssh_mesh_port, in host_vars/node1.yml or beside ansible_host of node1, "
        "to the port at which sshd listens there (2201 is expected: ssh_mesh_port, or else ansible_port, or "
        "else 22), and trainer_address to an address of the host itself."
    )


def test_a_login_that_something_else_answers_names_both_remedies(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_login, "TRIES", 1)
    answer, _ = logged_in(folder, fails="Host key verification failed.")
    assert "AllowUsers" in answer["msg"]
    assert "ssh_mesh_port" in answer["msg"]


def test_processes_of_the_account_are_ended_if_the_allowed_keys_have_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_login, "TRIES", 1)

    def ended() -> int:
        return len((folder / "ended").read_text().splitlines())

    first = logged_in(folder)[0]
    assert (first["changed"], ended()) == (True, 1)
    (folder / "revoked.krl").write_text("of node3")
    assert (logged_in(folder, check=True)[1], ended()) == (1, 1)
    refused, _ = logged_in(folder, fails="Permission denied (publickey).")
    assert (refused["failed"], ended()) == (True, 2)
    again, _ = logged_in(folder)
    assert (again["changed"], ended()) == (True, 3)
    ours = ", ".join(f"process {number} (sleep)" for number in range(5)) + " and 1 more"
    what = "node1: ended the processes of psfleet-ssh, because the list of keys that may log in has changed"
    assert again["warnings"] == [f"{what}: {ours}"]
    assert (logged_in(folder)[0]["changed"], ended()) == (False, 3)
    (folder / "proven").write_text("[]")
    assert (logged_in(folder)[0]["changed"], ended()) == (True, 4)


def test_a_login_that_hangs_is_ended_with_its_children(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_login, "SECONDS_TO_ANSWER", 0.2)
    hangs = ["sh", "-c", f"sleep 600 & echo $! >> {folder}/calls; wait"]
    assert ssh_login.login_problem(hangs) == "no answer within 0.2 s"
    (process,) = (folder / "calls").read_text().split()  # it is not tried again
    deadline = time.monotonic() + 60
    while (
        Path(f"/proc/{process}").exists() and "Z" not in Path(f"/proc/{process}/stat").read_text().split()[2]
    ):
        assert time.monotonic() < deadline


def test_check_mode_does_not_log_in(folder: Path) -> None:
    assert logged_in(folder, check=True)[1] == 0
    assert not (folder / "proven").exists()


def test_a_proof_holds_until_a_file_that_sshd_reads_changes(folder: Path) -> None:
    proven = folder / "proven"
    assert not proof_holds(proven)
    logged_in(folder)
    assert proof_holds(proven)
    for name in ("cert.pub", "sshd_config", "sshd_config.d/10-own.conf", "revoked.krl"):
        (folder / "sshd_config.d").mkdir(exist_ok=True)
        (folder / name).write_text("another")
        assert not proof_holds(proven), name
        logged_in(folder)
        assert proof_holds(proven), name
    # As an earlier version wrote it.
    proven.write_text('{"process": "", "files": {}}')
    assert not proof_holds(proven)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root ends processes of another user")
def test_ended_processes_of_the_proof_itself_are_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user = 1_200_000_000 + os.getpid()
    monkeypatch.setattr("pwd.getpwnam", lambda _name: SimpleNamespace(pw_uid=user))
    as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "sleep"]
    with subprocess.Popen([*as_user, "600"]) as before:
        # It is `setpriv` for a moment.
        while (running := ssh_login.running_of("lab-of-this-test")) != [f"process {before.pid} (sleep)"]:
            time.sleep(0.01)
        with subprocess.Popen([*as_user, "601"]) as proof:
            while len(ssh_login.running_of("lab-of-this-test")) < 2:
                time.sleep(0.01)
            ended = ssh_login.end_of("lab-of-this-test", running)
            assert (proof.wait(), before.wait()) == (-9, -9)
    assert ended == running
