"""A play without tasks passes whatever it should have tested."""

from pathlib import Path

import pytest
import yaml

MOLECULE = Path(__file__).resolve().parents[1] / "molecule"
NO_PLAYS = {"inventories", "tasks", "vars"}
PLAYBOOKS = [
    path
    for path in sorted(MOLECULE.rglob("*.yml"))
    if path.name != "molecule.yml" and not NO_PLAYS & set(path.relative_to(MOLECULE).parts)
]


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: str(path.relative_to(MOLECULE)))
def test_every_play_does_something(playbook: Path) -> None:
    plays = yaml.safe_load(playbook.read_text())
    assert plays
    for play in plays:
        work = [play.get(key) for key in ("tasks", "roles", "ansible.builtin.import_playbook")]
        assert any(work), f"{play.get('name')} has nothing to do"
