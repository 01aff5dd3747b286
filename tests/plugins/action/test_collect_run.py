import pytest

from plugins.action import collect_run
from tests.plugins.modules.module_run import action_of

HONEST = "/var/tmp/psfleet-a1_b2c3d.tar.gz"
INJECTED = "/x'\"\n!touch /tmp/owned\n"


@pytest.mark.parametrize(
    ("path", "size"),
    [
        (INJECTED, 1),
        ("/etc/shadow", 1),
        (f"{HONEST}\n", 1),
        (f"{HONEST}.gz", 1),
        (None, 1),
        (HONEST, "9" * 5000),
    ],
)
def test_a_host_does_not_choose_what_the_controller_fetches(path: object, size: object) -> None:
    action = action_of(collect_run.ActionModule, inventory_hostname="node1")
    action._run_module = lambda _arguments, _name: {"path": path, "size": size, "left_out": []}
    # It has no connection: whatever it fetches or removes ends in an AttributeError.
    answer = action._act({"run": {"id": "r1"}, "tasks": []})
    assert answer["failed"]
    assert answer["msg"].startswith("node1 has packed ")
    assert answer["msg"].endswith("bytes; expected /var/tmp/psfleet-[A-Za-z0-9_]{8}\\.tar\\.gz")
    assert answer["msg"].isprintable()
