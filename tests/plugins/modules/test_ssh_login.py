"""A login is proven where something has changed since it was. That sshd is reloaded, container hosts show."""

from pathlib import Path
from typing import Any

import pytest

from plugins.modules import ssh_login
from tests.plugins.modules.module_run import answer_of


@pytest.fixture
def folder(open_folder: Path) -> Path:
    """Return a folder of root's with what sshd reads, and a program that notes that it was called."""
    (open_folder / "cert.pub").write_text("a")
    return open_folder


def logged_in(folder: Path, *, fails: str = "", check: bool = False) -> tuple[dict[str, Any], int]:
    """Run the module; return its answer, and how often it has logged in."""
    program = f"echo x >> {folder}/calls; " + (f"echo '{fails}' >&2; exit 1" if fails else "exit 0")
    answer = answer_of(
        ssh_login.main,
        check=check,
        service="psfleet-no-such",
        login=["sh", "-c", program],
        files=[str(folder / "cert.pub")],
        proven=str(folder / "proven"),
        user="psfleet-ssh",
        host="node1",
    )
    calls = folder / "calls"
    return answer, len(calls.read_text().splitlines()) if calls.exists() else 0


def test_a_login_is_proven_once_and_again_when_a_file_is_another(folder: Path) -> None:
    assert [logged_in(folder)[1] for _ in range(3)] == [1, 1, 1]
    (folder / "new").write_text("a")
    (folder / "new").rename(folder / "cert.pub")
    answer, calls = logged_in(folder)
    assert (answer["proven"], answer["changed"], calls) == (True, False, 2)
    (folder / "cert.pub").unlink()
    assert logged_in(folder)[1] == 3


def test_a_login_that_fails_is_tried_some_times_and_never_noted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_login, "TRIES", 2)
    answer, calls = logged_in(folder, fails="Permission denied (publickey).")
    assert answer["failed"]
    assert "psfleet-ssh cannot log in from node1 to itself: Permission denied (publickey)." in answer["msg"]
    assert calls == 2
    assert not (folder / "proven").exists()
    assert logged_in(folder)[1] == 3


def test_a_check_does_not_log_in(folder: Path) -> None:
    assert logged_in(folder, check=True)[1] == 0
    assert not (folder / "proven").exists()


def test_what_sshd_reads_beside_them_counts(tmp_path: Path) -> None:
    (tmp_path / "sshd_config.d").mkdir()
    (tmp_path / "sshd_config.d" / "10-own.conf").write_text("")
    paths = ssh_login.read_by_sshd([tmp_path / "cert"], tmp_path)
    assert [path.name for path in paths] == ["cert", "sshd_config", "10-own.conf"]
    assert ssh_login.state_of(paths, "7") != ssh_login.state_of(paths, "8")
