"""Runs the playbooks with real Ansible on inventories that a test writes."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.psfleet.inventory.checked import written
from tests.repository import ROOT


class Run(NamedTuple):
    """The exit status of a playbook, and all that it printed."""

    status: int
    output: str


Preflight = Callable[..., Run]


def run_playbook(playbook: str, inventory: Path, *options: str) -> Run:
    settings = {
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_BECOME_ALLOW_SAME_USER": "1",  # sudo is asked even where the tests run as root
    }
    done = subprocess.run(
        [
            Path(sys.executable).parent / "ansible-playbook",
            ROOT / "playbooks" / playbook,
            "-i",
            inventory,
            *options,
        ],
        cwd=ROOT,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Run(done.returncode, done.stdout + done.stderr)


@pytest.fixture
def preflight(tmp_path: Path) -> Preflight:
    """Return a function that writes the files (name -> YAML content) as an inventory and checks it."""

    def check(files: dict[str, object], *options: str, playbook: str = "preflight_inventory.yml") -> Run:
        return run_playbook(playbook, written(tmp_path / "cluster", files), *options)

    return check
