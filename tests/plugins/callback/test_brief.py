"""The console of ansible.cfg, seen from outside."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT

TASKS = [
    {"name": "Look", "ansible.builtin.command": "true", "changed_when": False},
    {"name": "Skip", "ansible.builtin.command": "true", "when": False},
    {"name": "Change", "ansible.builtin.command": "sleep {{ seconds }}"},
    {"name": "Tell", "ansible.builtin.debug": {"msg": "first\nsecond"}},
    {"name": "Tell of each", "ansible.builtin.debug": {"msg": "{{ item }}"}, "loop": ["one", "two"]},
    {
        "name": "Break",
        "ansible.builtin.command": "sh -c 'echo why >&2; exit 3'",
        "when": "inventory_hostname == 'b'",
    },
    {"name": "Refuse", "ansible.builtin.fail": {"msg": "it is\nrefused"}},
]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what a playbook prints, without and with -v."""
    path = tmp_path_factory.mktemp("brief") / "playbook.yml"
    path.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": TASKS}]))
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "a,b,", "-c", "local"]
    command += ["-e", f"ansible_python_interpreter={sys.executable}", str(path)]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    # A task of 6 s is a long one.
    return {
        option: subprocess.run(
            [*command, *option.split(), "-e", f"seconds={0 if option else 6}"],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        for option in ("", "-v")
    }


def test_what_changed_was_told_and_failed_is_all_that_is_shown(played: dict[str, str]) -> None:
    shown, _, recap = played[""].partition("PLAY RECAP")
    assert shown.index("...      Change\n") < shown.index("changed  Change")
    # How long the others take is not the test's to say.
    lines = [line for line in shown.splitlines() if line and not line.startswith("...")]
    assert lines[0] == "changed  Change: a, b"
    assert sorted(lines[1:9]) == sorted(2 * ["first", "second", "one", "two"])
    assert lines[9:13] == [
        "FAILED   Break: b",
        "non-zero return code",
        "cmd: ['sh', '-c', 'echo why >&2; exit 3']",
        "rc: 3",
    ]
    assert lines[13:] == ["stderr: why", "FAILED   Refuse: a", "it is", "refused"]
    assert "failed=1" in recap


def test_more_is_asked_for_with_v(played: dict[str, str]) -> None:
    for words in (
        "PLAY [all]",
        "TASK [Look]",
        "ok: [a]",
        "skipping: [a]",
        "changed: [b]",
        "fatal: [a]: FAILED!",
    ):
        assert words in played["-v"]
