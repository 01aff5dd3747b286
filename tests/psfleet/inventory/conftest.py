"""Runs the playbooks with real Ansible on inventories that a test writes."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.psfleet.inventory.checked import written
from tests.repository import ROOT, played


class Run(NamedTuple):
    """The exit status of a playbook, and all that it printed."""

    status: int
    output: str


Preflight = Callable[..., Run]


def run_playbook(playbook: str, inventory: Path, *options: str) -> Run:
    # sudo is asked even where the tests run as root
    asking = {"ANSIBLE_BECOME_ALLOW_SAME_USER": "1"}
    done = played(ROOT / "playbooks" / playbook, "-i", inventory, *options, **asking)
    return Run(done.returncode, done.stdout + done.stderr)


@pytest.fixture
def preflight(tmp_path: Path) -> Preflight:
    """Return a function that writes the files (name -> YAML content) as an inventory and checks it."""

    def check(files: dict[str, object], *options: str, playbook: str = "preflight_inventory.yml") -> Run:
        return run_playbook(playbook, written(tmp_path / "cluster", files), *options)

    return check
