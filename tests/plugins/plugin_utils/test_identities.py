"""A host that tells what cannot be signed is refused by itself, before the keys of all are signed."""

import re
from typing import Any

import pytest

from plugins.plugin_utils.identities import identity_problem

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJtDWbVyQ7SXq3mXzTLZ2N8Hl3mzdgkv7Jr0r2W0lPWa root@node2"
TOLD = {"changed": False, "host_key": KEY, "user_key": KEY, "addresses": ["10.0.0.2"]}


def problem(told: dict[str, Any]) -> str:
    return identity_problem("node2", {"home": "/etc/psfleet/ssh", "name": "node2.lab"}, told)


@pytest.mark.parametrize("told", [TOLD, TOLD | {"user_key": ""}])
def test_what_can_be_signed_is_no_problem(told: dict[str, Any]) -> None:
    assert problem(told) == ""


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"host_key": ""}, r"/etc/ssh/ssh_host_ed25519_key\.pub of node2 is none that can be signed"),
        ({"host_key": KEY[:30]}, r"ssh-keygen -y -f /etc/ssh/ssh_host_ed25519_key > /etc/ssh/ssh_host_ed255"),
        (
            {"user_key": "no key"},
            r"/etc/psfleet/ssh/\.ssh/id_ed25519\.pub of node2 is none that can be signed",
        ),
        ({"user_key": "no key"}, "deploy again: rm /etc/psfleet/ssh/.ssh/id_ed25519.pub$"),
        ({"addresses": []}, "node2.lab has no address on node2 itself"),
        ({"addresses": ["0.0.0.0/0"]}, "node2 has told .*0.0.0.0/0"),
    ],
)
def test_a_host_and_its_file_are_named(told: dict[str, Any], says: str) -> None:
    assert re.search(says, problem(TOLD | told))
