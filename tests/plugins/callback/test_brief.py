"""The console of ansible.cfg, seen from outside."""

import json
import sys

import pytest

from tests.repository import played

TASKS = [
    {"name": "Look", "ansible.builtin.command": "true", "changed_when": False},
    {"name": "Skip", "ansible.builtin.command": "true", "when": False},
    {"name": "Change", "ansible.builtin.command": "sleep {{ seconds }}"},
    {"name": "Tell", "ansible.builtin.debug": {"msg": "first\nsecond"}},
    {"name": "Tell of each", "ansible.builtin.debug": {"msg": "{{ item }}"}, "loop": ["one", "two"]},
    {"name": "Break", "ansible.builtin.shell": "echo why >&2; exit 3", "when": "inventory_hostname == 'b'"},
    {"name": "Refuse", "ansible.builtin.fail": {"msg": "it is\nrefused"}},
]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what a playbook prints, without and with -v."""
    path = tmp_path_factory.mktemp("brief") / "playbook.yml"
    path.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": TASKS}]))
    options = ["-i", "a,b,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"]
    # A task of 6 s is a long one.
    return {
        more: played(path, *options, *more.split(), "-e", f"seconds={0 if more else 6}").stdout
        for more in ("", "-v")
    }


def test_what_changed_was_told_and_failed_is_all_that_is_shown(shown: dict[str, str]) -> None:
    said, _, recap = shown[""].partition("PLAY RECAP")
    assert said.index("...      Change\n") < said.index("changed  Change")
    # How long the others take is not the test's to say.
    lines = [line for line in said.splitlines() if line and not line.startswith("...")]
    assert lines[0] == "changed  Change: a, b"
    assert sorted(lines[1:9]) == sorted(2 * ["first", "second", "one", "two"])
    assert lines[9:13] == [
        "FAILED   Break: b",
        "non-zero return code",
        "cmd: echo why >&2; exit 3",
        "rc: 3",
    ]
    assert lines[13:] == ["stderr: why", "FAILED   Refuse: a", "it is", "refused"]
    assert "failed=1" in recap


def test_more_is_asked_for_with_v(shown: dict[str, str]) -> None:
    tasks = ("TASK [Look]", "ok: [a]", "skipping: [a]", "changed: [b]", "fatal: [a]: FAILED!")
    for words in ("PLAY [all]", *tasks):
        assert words in shown["-v"]
