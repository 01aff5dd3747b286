"""What counts as a thing to know."""

from pathlib import Path

import pytest

from tools.things_to_know import private_names

ACTION = """
from ansible.plugins.action import ActionBase
class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        self._mine = self._task.args
        return self._own(self._mine)
    def _own(self, given):
        return self._execute_module("ping")
def run_own(action):
    return action._own(3)
"""


@pytest.mark.parametrize(
    ("line", "private"),
    [
        ("from ansible._internal.x import Y", {"ansible._internal.x.Y"}),
        ("import ansible.module_utils._internal", {"ansible.module_utils._internal"}),
        ("from ansible.utils.display import _proxy", {"ansible.utils.display._proxy"}),
        ("action._connection.close()", {"_connection"}),
        ("action._execute_module('ping')", {"_execute_module"}),
        ("hostvars._inventory.groups", {"_inventory"}),
        ("os._exit(0)", set()),
    ],
)
@pytest.mark.parametrize("room", ["plugins/module_utils", "plugins/filter", "psfleet/watch"])
def test_a_private_name_of_ansible_counts_in_every_room(
    tmp_path: Path, room: str, line: str, private: set[str]
) -> None:
    (tmp_path / "plugins/action").mkdir(parents=True)
    (tmp_path / "plugins/action/some.py").write_text(ACTION)
    (tmp_path / room).mkdir(parents=True)
    (tmp_path / room / "other.py").write_text(line)
    assert private_names(tmp_path) == private


def test_a_plugin_uses_only_what_its_base_class_offers(tmp_path: Path) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/some.py").write_text(ACTION.replace("self._task.args", "self._load_name"))
    assert private_names(tmp_path) == {"_load_name"}
