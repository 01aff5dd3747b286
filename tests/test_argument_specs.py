"""Each role's defaults, argument_specs and README table say the same thing."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainer.settings import TrainingSettings

ROLES = Path(__file__).resolve().parents[1] / "roles"
ROW = re.compile(r"^\| `(?P<name>[a-z_]+)` \| `?(?P<default>.*?)`? \| \S")


def load(role: str, file: str) -> Any:  # noqa: ANN401
    path = ROLES / role / file
    return (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.exists() else {}


def options(role: str) -> dict[str, Any]:
    specifications = load(role, "meta/argument_specs.yml").get("argument_specs", {})
    return {
        name: option for entry in specifications.values() for name, option in entry.get("options", {}).items()
    }


def documented(role: str) -> dict[str, str]:
    text = (ROLES / role / "README.md").read_text(encoding="utf-8")
    variables = text.split("## Variables", 1)[1].split("\n## ", 1)[0]
    rows = (ROW.match(line) for line in variables.splitlines())
    return {row["name"]: row["default"] for row in rows if row}


roles = pytest.mark.parametrize("role", sorted(path.name for path in ROLES.iterdir() if path.is_dir()))


@roles
def test_every_variable_is_specified_and_documented(role: str) -> None:
    defaults = load(role, "defaults/main.yml")
    required = {name for name, option in options(role).items() if option.get("required")}
    assert set(options(role)) == set(defaults) | required
    assert set(documented(role)) == set(options(role))
    assert all(name.startswith(f"{role}_") for name in options(role))


@roles
def test_every_default_is_the_same_in_all_three_places(role: str) -> None:
    defaults = load(role, "defaults/main.yml")
    specified = {name: option.get("default") for name, option in options(role).items() if name in defaults}
    assert specified == defaults
    table = {name: text for name, text in documented(role).items() if name in defaults}
    assert {name: text if "{{" in text else yaml.safe_load(text) for name, text in table.items()} == defaults


@roles
def test_every_variable_has_a_type_and_a_description(role: str) -> None:
    lacking = [name for name, option in options(role).items() if not {"type", "description"} <= option.keys()]
    assert not lacking


def test_the_trainer_role_offers_every_training_setting_with_its_own_default() -> None:
    defaults = load("trainer", "defaults/main.yml")
    settings = TrainingSettings().as_dict()
    assert {name: defaults.get(f"trainer_{name}", "absent") for name in settings} == settings
