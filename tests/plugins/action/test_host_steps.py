"""Several steps on a host: their messages, and the name of a step that fails."""

from collections.abc import Iterator
from typing import Any

import pytest

from plugins.action.host_steps import ActionModule
from plugins.plugin_utils.actions import AnswerError
from tests.plugins.steps.module_run import action_of

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJtDWbVyQ7SXq3mXzTLZ2N8Hl3mzdgkv7Jr0r2W0lPWa root@node1"
IDENTITY: dict[str, Any] = {"host_key": KEY, "user_key": "", "prepared": False, "addresses": ["10.0.0.1"]}
IDENTITY |= {"authority": "", "cluster": "", "certificate": "", "deployed_by": ""}
STEPS = [
    {"name": "Look at the keys", "step": "ssh_identity", "fact": "psfleet_identity"},
    {"name": "Write files", "step": "managed_files"},
    {"name": "Read units", "step": "trainer_units"},
]


def took(*answers: dict[str, Any]) -> dict[str, Any]:
    action = action_of(ActionModule, inventory_hostname="node1")
    action._take_calls = lambda _calls: [dict(answer) for answer in answers]
    arguments: dict[str, Any] = {"home": "/etc/psfleet/ssh", "name": "node1.lab"}
    arguments |= {"authority": {"directory": "/no/such/ssh_ca", "cluster": "lab"}}
    result: dict[str, Any] = action._act({"steps": [{**step, "arguments": arguments} for step in STEPS]})
    return result


def test_steps_that_changed_something_are_named_and_facts_are_set_for_the_host() -> None:
    files = {"changed": True, "diff": [{"after": "x"}], "warnings": ["w"]}
    found = took(IDENTITY, files, {"changed": False, "diff": {}})
    assert (found["changed"], found["changed_steps"]) == (True, ["Write files"])
    assert (found["diff"], found["warnings"]) == ([{"after": "x"}], ["w"])
    assert found["ansible_facts"] == {"psfleet_identity": IDENTITY}


def test_a_step_that_frees_disk_space_names_the_amount() -> None:
    found = took(IDENTITY, {"changed": True, "freed_bytes": 2_000_000}, {"changed": False, "freed_bytes": 0})
    assert found["changed_steps"] == ["Write files (2.0 MB)"]


def test_the_first_failed_step_and_the_changed_steps_before_it_are_named() -> None:
    found = took(IDENTITY, {"changed": True}, {"failed": True, "msg": "no systemd"})
    assert (found["failed"], found["failed_step"], found["msg"]) == (True, "Read units", "no systemd")
    assert found["changed_steps"] == ["Write files"]


def test_a_host_with_unsignable_keys_fails_at_that_step_whatever_follows() -> None:
    found = took(IDENTITY | {"host_key": "none"}, {"changed": True}, {"changed": False})
    assert (found["failed"], found["failed_step"]) == (True, "Look at the keys")
    assert "/etc/ssh/ssh_host_ed25519_key.pub of node1" in found["msg"]


ROOT = {"name": "Act as root", "step": "require_root", "arguments": {}}
UNITS = {"name": "Read units", "step": "trainer_units", "arguments": {}}
REFUSED = {"failed": True, "msg": "no"}


@pytest.mark.parametrize(
    ("answers", "reached", "failed_step", "says"),
    [
        ([{}, {}], True, None, "- node1, user me: answered as root"),
        ([REFUSED], False, None, "- node1, user me: logged in, but could not act as root: no"),
        ([{}, REFUSED], True, "Read units", "- node1, user me: answered as root"),
        ([AnswerError("damaged")], False, None, "- node1, user me: damaged"),
    ],
)
def test_a_host_that_is_not_reached_as_root_is_reported_on_request(
    answers: list[Any], reached: bool, failed_step: str | None, says: str
) -> None:
    action = action_of(ActionModule, inventory_hostname="node1", ansible_user="me")
    action._take_calls = lambda _calls: answered(answers)
    found = action._act({"report_unreached": True, "steps": [ROOT, UNITS]})
    assert (found["reached"], found["summary"]) == (reached, says)
    assert (found.get("failed", False), found.get("failed_step")) == (bool(failed_step), failed_step)


def answered(answers: list[Any]) -> Iterator[dict[str, Any]]:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
        yield dict(answer)
