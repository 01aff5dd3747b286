"""The tasks that playbooks and roles run on hosts."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.repository import ROOT

# These run only on the controller. The result of a reboot is Ansible's own, and contains nothing of the host.
ON_CONTROLLER = ["assert", "debug", "fail", "import_playbook", "import_role", "import_tasks"]
ON_CONTROLLER += ["include_role", "include_tasks", "meta", "reboot", "set_fact"]
OURS = "psfleet.cluster."
HOOK = "roles/training_run/tasks/hook.yml"
# Roles and playbooks that make hosts out of this machine, and a command on this machine.
HERE = ("roles/practice_hosts/", "playbooks/practice_", HOOK)
FILES = [
    path
    for pattern in ("*.yml", "playbooks/**/*.yml", "roles/*/tasks/*.yml", "roles/*/handlers/*.yml")
    for path in sorted(ROOT.glob(pattern))
    if not str(path.relative_to(ROOT)).startswith((*HERE, "galaxy.yml"))
]


def actions(content: Any) -> Iterator[str]:  # noqa: ANN401 - of any YAML
    """Yield all keys with a dot in them, which are those of the actions that are named whole."""
    for each in content if isinstance(content, list) else [content]:
        for key, value in each.items() if isinstance(each, dict) else ():
            if key.count(".") > 1 and " " not in key:
                yield key
            if isinstance(value, list | dict):
                yield from actions(value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_of_ansible_runs_on_a_host_directly(path: Any) -> None:  # noqa: ANN401
    """The host's answer would reach the controller unchecked; `host_step` checks it."""
    allowed = {f"ansible.builtin.{name}" for name in ON_CONTROLLER}
    found = set(actions(yaml.safe_load(path.read_text())))
    assert {name for name in found if not name.startswith(OURS)} <= allowed


def test_the_hook_runs_on_this_machine_whatever_localhost_is_in_the_inventory() -> None:
    _, command, told = yaml.safe_load((ROOT / HOOK).read_text())
    assert (command["delegate_to"], command["vars"]["ansible_connection"]) == ("localhost", "local")
    assert [*actions([told])] == ["ansible.builtin.debug"]


def test_modules_are_executed_in_one_place() -> None:
    """That place decides which fields of their answers are kept."""
    plugins = ROOT / "plugins"
    runs = {path.name for path in plugins.rglob("*.py") if "_execute_module(" in path.read_text()}
    takes = {path.name for path in plugins.rglob("*.py") if "run_on_host(" in path.read_text()}
    assert (runs, takes) == ({"running.py"}, {"running.py", "actions.py"})
