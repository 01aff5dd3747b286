"""Plays import roles also for their variables, which Ansible makes public only on request.

By default Ansible makes those of imported roles public; with DEFAULT_PRIVATE_ROLE_VARS it does not.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.repository import ROOT

OURS = "psfleet.cluster."
TAKING = ("ansible.builtin.import_role", "ansible.builtin.include_role")
ROLES = {path.name: path for path in sorted((ROOT / "roles").iterdir())}
PLAYS = [
    pytest.param(play, id=f"{path.stem}: {play['name']}")
    for path in sorted((ROOT / "playbooks").glob("*.yml"))
    for play in yaml.safe_load(path.read_text())
    if "hosts" in play
]


def files_of(role: str, *folders: str) -> list[Path]:
    return [path for folder in folders for path in (ROLES[role] / folder).glob("*.*")]


def words_in(content: object) -> set[str]:
    """Return the words of all values, and not of the keys, which only set a variable."""
    if isinstance(content, dict | list):
        parts = content.values() if isinstance(content, dict) else content
        return set().union(*map(words_in, parts))
    return set(re.findall(r"\w+", str(content)))


def used_by(role: str) -> set[str]:
    """Return the words of a role's tasks, variables and templates."""
    texts = [path.read_text() for path in files_of(role, "templates")]
    loaded = files_of(role, "tasks", "handlers", "vars", "defaults")
    return words_in([*texts, *(yaml.safe_load(path.read_text()) for path in loaded)])


VARIABLES = {
    role: {
        name for path in files_of(role, "vars", "defaults") for name in yaml.safe_load(path.read_text()) or ()
    }
    for role in ROLES
}
USED = {role: used_by(role) for role in ROLES}


def taken(content: object) -> Iterator[Mapping[str, Any]]:
    """Yield the arguments of all that imports or includes a role."""
    for each in content if isinstance(content, list) else [content]:
        for key, value in each.items() if isinstance(each, dict) else ():
            if key in TAKING:
                yield value
            elif isinstance(value, list | dict):
                yield from taken(value)


def hidden(tasks: object, words: set[str]) -> list[str]:
    """Return the roles with variables that are not public although others use them."""
    roles = list(taken(tasks))
    names = [role["name"].removeprefix(OURS) for role in roles]
    found = []
    for name, role in zip(names, roles, strict=True):
        others = words.union(*(USED[other] for other in names if other != name))
        if VARIABLES[name] & others and not role.get("public"):
            found.append(name)
    return found


@pytest.mark.parametrize("play", PLAYS)
def test_a_play_makes_a_roles_variables_public_if_others_in_it_use_them(play: dict[str, Any]) -> None:
    assert hidden(play, words_in(play)) == []


@pytest.mark.parametrize("role", ROLES)
def test_a_role_makes_an_included_roles_variables_public_if_others_use_them(role: str) -> None:
    for path in files_of(role, "tasks", "handlers"):
        assert hidden(yaml.safe_load(path.read_text()), USED[role]) == []


def test_a_role_with_used_but_hidden_variables_is_found() -> None:
    role = {"name": f"{OURS}ssh_mesh"}
    tasks = [{"block": [{TAKING[0]: role}]}, {"ansible.builtin.debug": {"msg": "{{ ssh_mesh_user }}"}}]
    assert hidden(tasks, words_in(tasks)) == ["ssh_mesh"]
    assert hidden([{TAKING[0]: role}], set()) == []
    # A default of another role may use the variables, too.
    others = [{TAKING[1]: {"name": f"{OURS}training_run"}}, {TAKING[1]: {"name": f"{OURS}tensorboard"}}]
    assert hidden(others, set()) == ["training_run"]


PUBLIC = {
    name: role
    for role in ROLES
    for path in files_of(role, "defaults")
    for name in yaml.safe_load(path.read_text()) or ()
}


def taken_for_granted(role: str, text: str) -> list[str]:
    """Return the settings of other roles that an expression in a text of this role uses without a default.

    A playbook of a user's own may have this role without the other.
    """
    expressions = re.findall(r"\{[{%](.*?)[%}]\}", text, re.DOTALL)
    words = {
        word for each in expressions for word in re.findall(r"(?<!')\b[a-z_]+\b(?!\s*\|\s*default)", each)
    }
    others = {word for word in words if PUBLIC.get(word, role) != role}
    return sorted(word for word in others if f"{word} is defined" not in text)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_does_without_the_settings_of_other_roles(role: str) -> None:
    for path in files_of(role, "tasks", "handlers", "vars", "defaults", "templates"):
        assert taken_for_granted(role, path.read_text()) == [], path


def test_a_setting_of_another_role_that_is_taken_for_granted_is_found() -> None:
    assert taken_for_granted("ssh_mesh", "DenyUsers {{ trainer_user }}") == ["trainer_user"]
    assert taken_for_granted("ssh_mesh", "{{ trainer_user | default('psfleet') }} {{ ssh_mesh_user }}") == []
