"""The public keys of all hosts: reported, kept for hosts left out by --limit, and refused if invalid."""

import re
from pathlib import Path
from typing import Any

import pytest

from plugins.action import exchange_keys
from tests.plugins.modules.module_run import action_of

A, B, C, NEW = (letter * 42 + "A=" for letter in "abcd")
HOSTS = {host: {"address": f"fd00::{host}", "endpoint": f"10.0.0.{host}"} for host in "123"}


def gathered(folder: Path, *, check: bool = False, **told: str) -> dict[str, Any]:
    """What comes of keys that hosts tell; "node1" stands for 1."""
    action = action_of(exchange_keys.ActionModule, check=check, cluster_mesh={"port": 1, "hosts": HOSTS})
    answers = {host[-1]: key for host, key in told.items()}
    answer: dict[str, Any] = action._act(
        {"mesh": "wireguard", "file": str(folder / "state/keys.json"), "told": answers}
    )
    return answer


def test_all_hosts_are_returned_with_their_keys(tmp_path: Path) -> None:
    first = gathered(tmp_path, node1=A, node2=B, node3=C)
    assert (first["changed"], first["hosts"]["2"]) == (True, {**HOSTS["2"], "public_key": B})
    again = gathered(tmp_path, node1=A, node2=B, node3=C)
    assert again == {"changed": False, "hosts": first["hosts"]}


def test_keys_of_hosts_left_out_are_kept_and_a_changed_key_gives_a_warning(tmp_path: Path) -> None:
    whole = gathered(tmp_path, node1=A, node2=B, node3=C)
    assert gathered(tmp_path, node2=B) == {"changed": False, "hosts": whole["hosts"]}
    answer = gathered(tmp_path, node2=NEW)
    assert [answer["hosts"][host]["public_key"] for host in HOSTS] == [A, NEW, C]
    assert answer["warnings"] == ["1, 3 cannot be reached from 2, whose key is new: deploy to all hosts"]
    assert "warnings" not in gathered(tmp_path, node1=A, node2=B, node3=C)


def test_a_host_without_a_known_key_is_named(tmp_path: Path) -> None:
    answer = gathered(tmp_path, node1=A)
    assert answer["failed"]
    assert answer["msg"].startswith("the WireGuard public key of 2, 3 is not known here: deploy to all")
    assert not (tmp_path / "state").exists()


def test_check_mode_keeps_no_keys(tmp_path: Path) -> None:
    assert gathered(tmp_path, check=True, node1=A, node2="", node3=C) == {"changed": True, "hosts": {}}
    assert gathered(tmp_path, check=True, node1=A, node2=B, node3=C)["hosts"]["1"]["public_key"] == A
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("key", "says"),
    [
        (A, "1, 2 reported the same WireGuard public key; .* remove the folder mesh"),
        ("", "2 reported '' as its WireGuard public key"),
        (f"{B}\nPostUp = reboot", r"2 reported 'b*A=\\nPostUp = reboot' as its WireGuard public key"),
    ],
)
def test_an_invalid_or_repeated_key_is_refused(tmp_path: Path, key: str, says: str) -> None:
    answer = gathered(tmp_path, node1=A, node2=key, node3=C)
    assert answer["failed"]
    assert re.match(says, answer["msg"])


def test_a_damaged_kept_key_is_ignored(tmp_path: Path) -> None:
    gathered(tmp_path, node1=A, node2=B, node3=C)
    file = tmp_path / "state/keys.json"
    file.write_text(file.read_text().replace(B, "PostUp = reboot"))
    assert gathered(tmp_path, node1=A)["msg"].startswith("the WireGuard public key of 2 is not known")
    file.write_text("[]")
    assert gathered(tmp_path, node1=A)["failed"]
