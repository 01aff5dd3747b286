"""Runs the preflight playbooks with real Ansible on inventories that a test writes."""

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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


def refused(run: Run) -> dict[str, str]:
    """Return the problems of an inventory that was refused."""
    assert run.status == 2, run.output
    assert "Nothing was touched." in run.output
    assert run.problems, run.output
    return run.problems


def cure(problems: dict[str, str], start: str, *parts: str) -> str:
    """Return the cure of the one problem that starts so; each part must be in its text."""
    found = [what for what in problems if what.startswith(start)]
    assert len(found) == 1, problems
    assert all(part in found[0] for part in parts), found[0]
    return problems[found[0]]


SHOW_PLAN = """---
- name: Check the inventory
  ansible.builtin.import_playbook: {repository}/playbooks/preflight_inventory.yml
- name: Show what every later play gets
  hosts: tf_cluster
  gather_facts: false
  run_once: true
  tasks:
    - name: Show it
      ansible.builtin.debug:
        msg: "FACTS {{{{ facts | to_json | b64encode }}}} END"
      vars:
        facts:
          plan: "{{{{ cluster_plan }}}}"
          settings: "{{{{ cluster_settings }}}}"
          program: "{{{{ cluster_program }}}}"
          data: "{{{{ cluster_data }}}}"
"""


@pytest.fixture
def show_plan(tmp_path: Path) -> Path:
    """Return a playbook that checks the inventory and shows the facts that it gives, for `facts`."""
    playbook = tmp_path / "show.yml"
    playbook.write_text(SHOW_PLAN.format(repository=REPOSITORY), encoding="utf-8")
    return playbook


def facts(run: Run) -> dict[str, Any]:
    """Return the facts that `show_plan` printed."""
    assert run.status == 0, run.output
    encoded = re.search(r"FACTS\s+(\S+)\s+END", run.output)
    assert encoded, run.output
    shown: dict[str, Any] = json.loads(base64.b64decode(encoded[1]))
    return shown


def placed(shown: dict[str, Any]) -> dict[str, str]:
    """Return task -> "host:port", and the GPUs where it has some, of what `facts` returned."""
    return {
        f"{task['job']}{task['index']}": f"{task['host']}:{task['port']}"
        + (f" GPU {','.join(map(str, task['gpus']))}" if task["gpus"] else "")
        for task in shown["plan"]["tasks"]
    }
