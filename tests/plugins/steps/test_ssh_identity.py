"""The key of the login belongs to root, is in directories of root, and is readable by one group."""

import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.steps import ssh_identity
from tests.plugins.steps.module_run import answer_of

NAMES = {"user": "daemon", "comment": "daemon@node1", "name": "10.0.0.1"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    host = tmp_path / "host.pub"
    host.write_text("ssh-ed25519 AAAA root@node1\n")
    monkeypatch.setattr(ssh_identity, "HOST_KEY", host)
    return tmp_path / "etc" / "ssh"


def told(home: Path, *, check: bool = False, **other: object) -> dict[str, Any]:
    return answer_of(ssh_identity.run, check=check, home=str(home), **NAMES | other)


def test_a_key_is_created_once_and_the_login_may_read_it_and_not_change_it(home: Path) -> None:
    home.parent.mkdir()
    made = told(home)
    assert made["changed"]
    key = home / ".ssh" / "id_ed25519"
    printed = subprocess.run(["ssh-keygen", "-y", "-f", key], check=False, capture_output=True, text=True)
    assert "UNPROTECTED" in printed.stderr, "root's own ssh does not take it"
    assert (key.stat().st_mode & 0o777, key.stat().st_uid, key.stat().st_gid) == (0o640, 0, 1)
    public = (home / ".ssh" / "id_ed25519.pub").read_text().strip()
    assert (made["user_key"], made["host_key"]) == (public, "ssh-ed25519 AAAA root@node1")
    assert public.endswith(" daemon@node1")
    again = told(home)
    assert again == made | {"changed": False, "prepared": True}


def test_check_mode_creates_no_key(home: Path) -> None:
    checked = told(home, check=True)
    assert (checked["changed"], checked["user_key"]) == (True, "")
    assert not home.parent.exists()


def test_a_look_changes_nothing_and_reports_whether_all_is_prepared(home: Path) -> None:
    looked = told(home, make=False)
    assert (looked["changed"], looked["user_key"], looked["prepared"]) == (False, "", False)
    assert not home.parent.exists()
    home.parent.mkdir()
    told(home)
    found = pwd.getpwnam("daemon")
    as_it_is = {"home": found.pw_dir, "shell": found.pw_shell}
    assert told(home, make=False, accounts={"daemon": as_it_is})["prepared"]
    for accounts in ({"daemon": as_it_is | {"shell": "/bin/own"}}, {"psfleet-no-such": as_it_is}):
        assert not told(home, make=False, accounts=accounts)["prepared"]
    os.chown(home / ".ssh" / "id_ed25519", 0, 0)
    assert not told(home, make=False)["prepared"]
    assert (home / ".ssh" / "id_ed25519").stat().st_gid == 0


@pytest.mark.parametrize("left", ["id_ed25519", "id_ed25519.pub"])
def test_an_interrupted_creation_is_repaired(home: Path, left: str) -> None:
    home.parent.mkdir()
    told(home)
    key = home / ".ssh" / "id_ed25519"
    os.chown(key, 0, 0)
    if left == "id_ed25519":
        key.with_suffix(".pub").unlink()
    again = told(home)
    assert again["user_key"]
    assert key.stat().st_gid == 1


def test_a_missing_host_key_is_named(home: Path) -> None:
    home.parent.mkdir()
    ssh_identity.HOST_KEY.unlink()
    assert "host.pub" in told(home)["msg"]


@pytest.mark.parametrize(
    ("name", "addresses"),
    [("10.0.0.1", ["10.0.0.1"]), ("[fd00::1]", ["fd00::1"]), ("localhost", []), ("no.such.host.invalid", [])],
)
def test_the_addresses_of_the_name_are_returned_without_loopback(
    home: Path, name: str, addresses: list[str]
) -> None:
    home.parent.mkdir()
    assert told(home, name=name)["addresses"] == addresses
