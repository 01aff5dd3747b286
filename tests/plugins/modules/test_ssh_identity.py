"""What host_facts finds of accounts and keys."""

import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.facts import ssh_identity
from tests.plugins.modules.module_run import fact_of

NAMES = {"user": "daemon", "name": "10.0.0.1"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    host = tmp_path / "host.pub"
    host.write_text("ssh-ed25519 AAAA root@node1\n")
    monkeypatch.setattr(ssh_identity, "HOST_KEY", host)
    return tmp_path / "etc" / "ssh"


def told(home: Path, **other: Any) -> dict[str, Any]:  # noqa: ANN401
    return fact_of("identity", home=str(home), **NAMES | other)


def with_key(home: Path) -> Path:
    """Have a key as the role ssh_mesh makes it, and return its path."""
    key = home / ".ssh" / "id_ed25519"
    key.parent.mkdir(parents=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    os.chown(key, 0, pwd.getpwnam("daemon").pw_gid)
    key.chmod(0o640)
    return key


def test_the_keys_and_whether_all_is_prepared_are_returned(home: Path) -> None:
    looked = told(home)
    assert (looked["user_key"], looked["prepared"], looked["proven"]) == ("", False, False)
    assert not home.parent.exists()
    key = with_key(home)
    found = pwd.getpwnam("daemon")
    as_it_is = {"home": found.pw_dir, "shell": found.pw_shell}
    looked = told(home, accounts={"daemon": as_it_is})
    assert looked["prepared"]
    public = key.with_suffix(".pub").read_text().strip()
    assert (looked["user_key"], looked["host_key"]) == (public, "ssh-ed25519 AAAA root@node1")
    for accounts in ({"daemon": as_it_is | {"shell": "/bin/own"}}, {"psfleet-no-such": as_it_is}):
        assert not told(home, accounts=accounts)["prepared"]
    os.chown(key, 0, 0)
    assert not told(home)["prepared"]


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
