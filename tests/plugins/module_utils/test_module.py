"""An argument that the state of a module does not take is refused, as is one that is missing."""

from types import ModuleType
from typing import Any

import pytest

from plugins.modules import content_release, host_doctor, host_runs, trainer_tasks
from tests.plugins.modules.module_run import module_answer

MISSING = "all of the following are missing"
PRESENT: dict[str, Any] = {"release": "0" * 12, "folder": "/nowhere"}
PRUNED: dict[str, Any] = {"state": "pruned", "wanted": [], "keep": 2, "paths": {}}
PROBED: dict[str, Any] = {"state": "probed", "host": "node1", "tasks": []}
PACKED: dict[str, Any] = {"state": "packed", "run_id": "r1", "limit_megabytes": 1, "owner": 0, "paths": {}}
RELOADED: dict[str, Any] = {"state": "reloaded", "tasks": [], "paths": {}, "metrics_record": "/nowhere"}


@pytest.mark.parametrize(
    ("module", "arguments", "says"),
    [
        (content_release, {"folder": "/nowhere"}, f"present but {MISSING}: release"),
        (content_release, {"state": "pruned"}, f"pruned but {MISSING}: wanted, keep, paths"),
        (content_release, PRESENT | {"keep": 2}, "present, which takes no keep"),
        (content_release, PRUNED | PRESENT, "pruned, which takes no folder and no release"),
        (content_release, PRUNED | {"group": "psfleet"}, "pruned, which takes no group"),
        (host_doctor, PROBED | {"fence": False}, "probed, which takes no fence"),
        (host_doctor, PROBED | {"plan": ""}, "probed, which takes no plan"),
        (host_doctor, PROBED | {"state": "listening"}, f"listening but {MISSING}: seconds"),
        (host_runs, {"paths": {}, "run_id": "r1"}, "listed, which takes no run_id"),
        (host_runs, {"paths": {}, "state": "removed"}, f"removed but {MISSING}: collected, stay"),
        (host_runs, PACKED | {"stay": 1}, "packed, which takes no stay"),
        (trainer_tasks, RELOADED | {"others": True}, "reloaded, which takes no others"),
        (trainer_tasks, RELOADED | {"state": "stopped"}, "stopped, which takes no metrics_record"),
    ],
)
def test_an_argument_that_the_state_lacks_or_does_not_take_is_named(
    module: ModuleType, arguments: dict[str, Any], says: str
) -> None:
    answer = module_answer(module, **arguments)
    assert (answer["failed"], answer["msg"]) == (True, f"state is {says}")
