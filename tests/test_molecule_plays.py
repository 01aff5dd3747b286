"""A play without tasks would pass without a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.repository import ROOT

MOLECULE = ROOT / "molecule"
NO_PLAYS = {"inventories", "tasks", "vars"}
PLAYBOOKS = [
    path
    for path in sorted(MOLECULE.rglob("*.yml"))
    if path.name != "molecule.yml" and not NO_PLAYS & set(path.relative_to(MOLECULE).parts)
]


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: str(path.relative_to(MOLECULE)))
def test_every_play_has_tasks_roles_or_an_import(playbook: Path) -> None:
    plays = yaml.safe_load(playbook.read_text())
    assert plays
    for play in plays:
        work = [play.get(key) for key in ("tasks", "roles", "ansible.builtin.import_playbook")]
        assert any(work), f"{play.get('name')} has nothing to do"


def test_every_file_of_a_behaviour_is_used_by_a_play() -> None:
    for behaviour in MOLECULE.glob("*/behaviours/*.yml"):
        verify = behaviour.parent.parent / "verify.yml"
        assert f"import_playbook: behaviours/{behaviour.name}\n" in verify.read_text(), behaviour


def test_every_condition_is_text_or_a_boolean() -> None:
    """YAML reads a condition with ": " in it as a mapping, which Ansible refuses only when it runs."""
    broken = [
        f"{path.relative_to(MOLECULE)}: {condition}"
        for path in sorted(MOLECULE.rglob("*.yml"))
        for condition in conditions(yaml.safe_load(path.read_text()))
        if not isinstance(condition, str | bool)
    ]
    assert not broken


def conditions(part: object) -> Iterator[object]:
    """Yield each condition in a playbook, or in a part of one."""
    if isinstance(part, list):
        for item in part:
            yield from conditions(item)
    elif isinstance(part, dict):
        for key, value in part.items():
            if key in {"that", "when", "failed_when", "changed_when", "until"}:
                yield from value if isinstance(value, list) else [value]
            yield from conditions(value)
