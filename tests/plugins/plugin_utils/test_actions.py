"""Actions on a host whose login shell prints before it does what it is told."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.plugins.loader import shell_loader

from plugins.action.host_module import ActionModule
from tests.plugins.modules.module_run import action_of


@pytest.mark.parametrize("prints", ["", "hello", "agent pid 77; it is $5 (ok)", "hello\\n", "/", "a\\nb"])
def test_the_home_of_a_user_is_no_part_of_what_the_shell_prints(tmp_path: Path, prints: str) -> None:
    """Ansible would make its temporary folder below what is printed, or fail."""
    profile = tmp_path / "bashrc"
    profile.write_text(f"printf '{prints}'\n")
    action = action_of(ActionModule, inventory_hostname="node1")
    action._connection = SimpleNamespace(
        _shell=shell_loader.get("sh"), become=None, get_option=lambda _: "root"
    )

    def execute(cmd: str, **_: object) -> dict[str, str]:
        done = subprocess.run(
            ["bash", "-c", cmd],
            env={"BASH_ENV": str(profile), "HOME": "/home/ada"},
            capture_output=True,
            text=True,
            check=True,
        )
        return {"stdout": done.stdout, "stderr": ""}

    action._low_level_execute_command = execute
    action._get_remote_user = lambda: "root"
    assert action._remote_expand_user("~/.ansible/tmp", sudoable=False) == "/root/.ansible/tmp"
    assert action._remote_expand_user("/var/tmp", sudoable=False) == "/var/tmp"
    assert action._low_level_execute_command is execute
