"""An argument that the state of a module does not take is refused, as is one that is missing."""

from typing import Any

import pytest

from plugins.modules import content_release
from tests.plugins.modules.module_run import module_answer

PRESENT: dict[str, Any] = {"release": "0" * 12, "folder": "/nowhere"}
PRUNED: dict[str, Any] = {"state": "pruned", "wanted": [], "keep": 2, "paths": {}}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"folder": "/nowhere"}, "state is present but all of the following are missing: release"),
        ({"state": "pruned"}, "state is pruned but all of the following are missing: wanted, keep, paths"),
        (PRESENT | {"keep": 2}, "state is present, which takes no keep"),
        (PRUNED | PRESENT, "state is pruned, which takes no folder and no release"),
        (PRUNED | {"group": "psfleet"}, "state is pruned, which takes no group"),
    ],
)
def test_an_argument_that_the_state_lacks_or_does_not_take_is_named(
    arguments: dict[str, Any], says: str
) -> None:
    answer = module_answer(content_release, **arguments)
    assert (answer["failed"], answer["msg"]) == (True, says)
