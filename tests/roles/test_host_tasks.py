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
# What they say of files, a web server and an interface of the host decides what happens on that host alone.
# The last one also says a public key, for the other hosts: `exchange_keys` checks it.
SEEN = {
    "__tensorboard_present": "ansible.builtin.stat",
    "__tensorboard_login": "ansible.builtin.command",
    "__tensorboard_answer": "ansible.builtin.uri",
    "__wireguard_mesh_look": "ansible.builtin.command",
}
FILES = [
    path
    for pattern in ("*.yml", "playbooks/**/*.yml", "roles/*/tasks/*.yml", "roles/*/handlers/*.yml")
    for path in sorted(ROOT.glob(pattern))
    if not str(path.relative_to(ROOT)).startswith((*HERE, "galaxy.yml"))
]


def tasks_in(content: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - of any YAML
    """Yield the tasks of plays, of blocks and of lists of tasks."""
    for each in content if isinstance(content, list) else []:
        yield each
        for part in ("tasks", "pre_tasks", "block", "rescue", "always"):
            yield from tasks_in(each.get(part, []))


def on_a_host(task: dict[str, Any], on_controller: set[str]) -> list[str]:
    """Return the module of Ansible's that a task runs on a host, if it does."""
    names = [key for key in task if key.count(".") > 1 and " " not in key]
    return [name for name in names if not name.startswith(OURS) and name not in on_controller]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_play_computes_with_what_a_module_of_ansible_answers_unchecked(path: Any) -> None:  # noqa: ANN401
    """Ansible itself takes from such an answer whether something changed or failed, and nothing else."""
    allowed = {f"ansible.builtin.{name}" for name in ON_CONTROLLER}
    tasks = list(tasks_in(yaml.safe_load(path.read_text())))
    told = {
        task["register"]: name for task in tasks for name in on_a_host(task, allowed) if "register" in task
    }
    assert {name: SEEN.get(name) for name in told} == told


def test_the_hook_runs_on_this_machine_whatever_localhost_is_in_the_inventory() -> None:
    _, command, told = yaml.safe_load((ROOT / HOOK).read_text())
    assert (command["delegate_to"], command["vars"]["ansible_connection"]) == ("localhost", "local")
    assert "ansible.builtin.debug" in told


def test_modules_are_executed_in_one_place() -> None:
    """That place decides which fields of their answers are kept."""
    plugins = ROOT / "plugins"
    runs = {path.name for path in plugins.rglob("*.py") if "_execute_module(" in path.read_text()}
    takes = {path.name for path in plugins.rglob("*.py") if "answer_of(" in path.read_text()}
    assert (runs, takes) == ({"actions.py"}, {"running.py", "actions.py"})


def test_no_command_on_a_host_gets_input_that_it_may_not_read() -> None:
    """A command that ends before Ansible has written `stdin` fails with the code 32 of a broken pipe."""
    tasks = [(path, task) for path in FILES for task in tasks_in(yaml.safe_load(path.read_text()))]
    commands = [(path, task.get("ansible.builtin.command")) for path, task in tasks]
    assert [path for path, command in commands if isinstance(command, dict) and "stdin" in command] == []
