"""Runs the preflight playbooks with real Ansible on inventories that a test writes."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]


class Run(NamedTuple):
    """The exit status of a playbook, all that it printed, and the numbered problems with their cures."""

    status: int
    output: str
    problems: dict[str, str]


Preflight = Callable[..., Run]


def run_playbook(playbook: str, inventory: Path | None, *options: str) -> Run:
    command = [
        str(Path(sys.executable).parent / "ansible-playbook"),
        str(REPOSITORY / "playbooks" / playbook),
        *options,
    ]
    if inventory:
        command += ["-i", str(inventory)]
    settings = {
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
        "ANSIBLE_BECOME_ALLOW_SAME_USER": "1",  # sudo is asked even where the tests run as root
    }
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    output = done.stdout + done.stderr
    return Run(
        done.returncode, output, dict(re.findall(r"^\d+\. (.*)\n   (.*)$", output, flags=re.MULTILINE))
    )


@pytest.fixture
def preflight(tmp_path: Path) -> Preflight:
    """Return a function that writes the files (name -> YAML content) as an inventory and checks it."""

    def check(files: dict[str, object], *options: str, playbook: str = "preflight_inventory.yml") -> Run:
        folder = tmp_path / "inventory"
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
            (folder / name).write_text(text, encoding="utf-8")
        return run_playbook(playbook, folder, *options)

    return check


def hosts_file(ps: object, worker: object, **more: object) -> dict[str, object]:
    return {"tf_cluster": {"children": {"ps": {"hosts": ps}, "worker": {"hosts": worker}}, **more}}
