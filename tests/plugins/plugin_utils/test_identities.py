"""A host with keys that cannot be signed is refused alone, before the keys of all are signed."""

import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from plugins.plugin_utils.identities import identity_problem
from psfleet.carry.certificates import (
    CertificateContent,
    authority,
    public_text,
    record_own_authority,
    sign_certificate,
)

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJtDWbVyQ7SXq3mXzTLZ2N8Hl3mzdgkv7Jr0r2W0lPWa root@node2"
TOLD = {"changed": False, "host_key": KEY, "user_key": KEY, "addresses": ["10.0.0.2"]}
TOLD |= {"authority": "", "cluster": "", "certificate": "", "deployed_by": ""}


def problem(
    told: dict[str, Any], directory: str = "/no/such/ssh_ca", tasks: Iterable[dict[str, Any]] = ()
) -> str:
    arguments: dict[str, Any] = {"home": "/etc/psfleet/ssh", "name": "node2.lab"}
    arguments |= {"authority": {"directory": directory, "cluster": "lab"}}
    return identity_problem("node2", arguments, told, tasks)


@pytest.mark.parametrize("told", [TOLD, TOLD | {"user_key": ""}])
def test_signable_keys_are_accepted(told: dict[str, Any]) -> None:
    assert problem(told) == ""


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"host_key": ""}, r"/etc/ssh/ssh_host_ed25519_key\.pub of node2 is not a key that can be signed"),
        ({"host_key": KEY[:30]}, r"ssh-keygen -y -f /etc/ssh/ssh_host_ed25519_key > /etc/ssh/ssh_host_ed255"),
        (
            {"user_key": "no key"},
            r"/etc/psfleet/ssh/\.ssh/id_ed25519\.pub of node2 is not a key that can be signed",
        ),
        ({"user_key": "no key"}, "deploy again: rm /etc/psfleet/ssh/.ssh/id_ed25519.pub$"),
        ({"addresses": []}, "node2.lab has no address on node2 itself"),
        ({"addresses": ["0.0.0.0/0"]}, "node2 reported .*0.0.0.0/0"),
    ],
)
def test_an_unsignable_key_is_refused_with_its_host_and_file(told: dict[str, Any], says: str) -> None:
    assert re.search(says, problem(TOLD | told))


def test_a_host_of_another_controller_is_refused_until_the_user_has_decided(
    tmp_path: Path,
) -> None:
    here, there = tmp_path / "here" / "ssh_ca", tmp_path / "there" / "ssh_ca"
    there.mkdir(parents=True)
    told = TOLD | {"authority": made(there), "cluster": "lab"}
    (there / "user_ca.pub").write_text(str(told["authority"]))
    listing = ["ssh-keygen", "-l", "-f", str(there / "user_ca.pub")]
    shown = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()[1]
    for _ in range(2):  # whether this controller has one of its own, or not
        refused = problem(told, str(here))
        assert refused.startswith("node2 belongs to another inventory, because it trusts another")
        assert f"authority of the cluster lab ({shown})" in refused
        assert "To take the host over: ansible-playbook reset.yml --limit node2." in refused
        assert f"copy the directory ssh_ca from there to {here}." in refused
        here.mkdir(parents=True, exist_ok=True)
        made(here)
    # The trusted authority belongs to another cluster, or is invalid.
    assert (
        problem(told | {"cluster": "other"}, str(here)) == problem(told | {"authority": "x"}, str(here)) == ""
    )
    by = problem(told | {"deployed_by": "bob@ws"}, str(here))
    assert "it was deployed, last by bob@ws, from another controller, by another user" in by
    tasks = [{"run_id": "night", "alive": True}, {"run_id": "ended", "alive": False}]
    busy = problem(told, str(here), tasks)
    assert "at another path, and run night is going on there. To take the host over, once run" in busy
    command = refused.rpartition(": ")[2].partition(",")[0]
    subprocess.run(["sh", "-c", command], check=True)
    assert problem(told, str(here)) == ""
    shutil.rmtree(here)
    shutil.copytree(there, here)
    assert problem(told, str(here)) == ""


def test_an_older_copy_of_the_authority_is_refused_until_the_newer_one_is_present(tmp_path: Path) -> None:
    old, new = tmp_path / "old" / "ssh_ca", tmp_path / "new" / "ssh_ca"
    old.mkdir(parents=True)
    told = TOLD | {"authority": made(old), "cluster": "lab", "deployed_by": "bob@ws"}
    told["certificate"] = certified(old, "node2", days_ago=6)
    shutil.copytree(old, new)
    assert problem(told, str(old)) == problem(told, str(new)) == ""
    told["certificate"] = certified(new, "node2", days_ago=1)
    refused = problem(told, str(old))
    assert refused.startswith(f"node2 was deployed by bob@ws with a copy of {old} that has signed")
    assert problem(told, str(new)) == ""
    # An older certificate, or one of another host, of another authority or of none, is no reason.
    (tmp_path / "other").mkdir()
    made(tmp_path / "other")
    for certificate in (
        certified(new, "node3", days_ago=0),
        certified(tmp_path / "other", "node2", days_ago=0),
        "x",
        certified(new, "node2", days_ago=9),
    ):
        assert problem(told | {"certificate": certificate}, str(old)) == ""
    subprocess.run(["sh", "-c", refused.rpartition(": ")[2]], check=True)
    assert problem(told, str(old)) == ""


def certified(directory: Path, host: str, *, days_ago: int) -> str:
    """Return a certificate of the login of a host, which a deployment has signed and kept."""
    key = authority(directory, "user", make=True)
    assert key
    wanted = CertificateContent(KEY, f"psfleet-ssh@{host} of lab from 10.0.0.2", ("lab",), 7)
    text = sign_certificate(key, "user", wanted, time.time() - days_ago * 86_400).public_bytes().decode()
    file = directory / "signed" / host / "user-cert.pub"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")
    return text


def test_a_host_accepts_new_authorities_of_the_same_controller(tmp_path: Path) -> None:
    directory = tmp_path / "ssh_ca"
    directory.mkdir()
    told = TOLD | {"authority": made(directory), "cluster": "lab"}
    shutil.rmtree(directory)
    assert problem(told, str(directory)) == ""
    directory.mkdir()
    assert made(directory) != told["authority"]
    assert problem(told, str(directory)) == ""


def made(directory: Path) -> str:
    """Return the authority of users in a directory, created if it is missing."""
    key = authority(directory, "user", make=True)
    assert key
    record_own_authority(directory, key)
    return public_text(key)
