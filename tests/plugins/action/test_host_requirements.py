"""What the action adds to the module's answer: the other clock is here."""

import time
from typing import Any

import pytest

from plugins.action.host_requirements import ActionModule
from tests.plugins.modules.module_run import action_of


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        (0, ""),
        (-3500, ""),
        (7300, "cluster: its clock is 2 h 1 min ahead of the controller's (give or take 0.0 s): SSH cert"),
        (-3700, "cluster: its clock is 61 min behind the controller's"),
    ],
)
def test_a_clock_that_no_certificate_bears_is_refused_with_the_difference(ahead: float, words: str) -> None:
    action = action_of(ActionModule)
    answer = {"environment": "cpu-python3.11-x86_64", "clock": time.time() + ahead}
    action._run_module = lambda _: answer
    told: dict[str, Any] = action._act({"host": "node3"})
    if not words:
        assert told == answer
    else:
        assert told["failed"]
        assert told["msg"].startswith(f"node3 cannot be part of the {words}")
        assert told["msg"].endswith("timedatectl set-ntp true. Nothing was changed there.")


def test_what_keeps_a_host_from_it_is_said_as_the_module_says_it() -> None:
    action = action_of(ActionModule)
    action._run_module = lambda _: {"failed": True, "msg": "no AVX"}
    assert action._act({"host": "node3"}) == {"failed": True, "msg": "no AVX"}
