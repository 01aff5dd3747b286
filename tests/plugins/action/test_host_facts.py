"""The look at a host: keys that cannot be signed, and hosts that are not reached."""

from typing import Any

import pytest

from plugins.action.host_facts import ActionModule
from plugins.module_utils.module import NOT_ROOT
from plugins.plugin_utils.actions import AnswerError
from tests.plugins.modules.module_run import action_of

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJtDWbVyQ7SXq3mXzTLZ2N8Hl3mzdgkv7Jr0r2W0lPWa root@node1"
IDENTITY: dict[str, Any] = {"host_key": KEY, "user_key": "", "prepared": False, "addresses": ["10.0.0.1"]}
IDENTITY |= {"authority": "", "cluster": "", "certificate": "", "deployed_by": ""}
ASKED: dict[str, Any] = {"home": "/etc/psfleet/ssh", "name": "node1.lab"}
ASKED |= {"authority": {"directory": "/no/such/ssh_ca", "cluster": "lab"}}


def looked(answer: dict[str, Any] | Exception, **arguments: object) -> dict[str, Any]:
    """Return what the action makes of an answer; the host is asked nothing that is for the controller."""
    action = action_of(ActionModule, inventory_hostname="node1", ansible_user="me")

    def take(_module: str, asked: dict[str, Any]) -> dict[str, Any]:
        assert "authority" not in asked.get("identity", {}) and "report_unreached" not in asked
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    action._run_module = take
    found: dict[str, Any] = action._act(arguments)
    return found


@pytest.mark.parametrize("host_key", [KEY, "none"])
def test_a_host_with_keys_that_cannot_be_signed_fails(host_key: str) -> None:
    answer = {"ansible_facts": {"psfleet_identity": IDENTITY | {"host_key": host_key}}}
    found = looked(answer, identity=ASKED)
    if host_key == KEY:
        assert found == answer
    else:
        assert found["failed"]
        assert "/etc/ssh/ssh_host_ed25519_key.pub of node1" in found["msg"]


REFUSED = {"failed": True, "msg": f"{NOT_ROOT} 1000; expected 0"}


@pytest.mark.parametrize(
    ("answer", "reached", "says"),
    [
        ({}, True, "- node1, user me: answered as root"),
        (REFUSED, False, f"- node1, user me: logged in, but could not act as root: {REFUSED['msg']}"),
        (AnswerError("damaged"), False, "- node1, user me: damaged"),
    ],
)
def test_a_host_that_is_not_reached_as_root_is_reported_on_request(
    answer: dict[str, Any] | Exception, reached: bool, says: str
) -> None:
    found = looked(answer, report_unreached=True)
    assert (found["reached"], found["summary"], found.get("failed", False)) == (reached, says, False)


def test_a_host_that_was_reached_and_lacks_something_fails_by_itself() -> None:
    found = looked({"failed": True, "msg": "no TensorFlow for it"}, report_unreached=True)
    assert found["reached"] and found["failed"]
