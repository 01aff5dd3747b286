"""Imported files are linted and their syntax is checked, as by ansible-lint itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT

PLAY = "- name: One\n  hosts: localhost\n  {tasks}:\n    - ansible.builtin.command: ls\n"


@pytest.mark.slow
def test_imported_playbooks_are_linted_and_their_syntax_is_checked(tmp_path: Path) -> None:
    for name, tasks in (("unnamed", "tasks"), ("misspelled", "taskz")):
        (tmp_path / f"{name}.yml").write_text("---\n" + PLAY.format(tasks=tasks))
        imported = f"---\n- name: It\n  ansible.builtin.import_playbook: {name}.yml\n"
        (tmp_path / f"imports_{name}.yml").write_text(imported)
    command = [sys.executable, f"{ROOT}/tools/ansible_lint.py", "--offline", "--format=pep8", "--nocolor"]
    ran = subprocess.run(
        [*command, "imports_unnamed.yml", "imports_misspelled.yml"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2, ran.stderr
    assert "unnamed.yml:5: name[missing]" in ran.stdout
    assert "misspelled.yml:4:3: syntax-check" in ran.stdout
