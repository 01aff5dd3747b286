"""Collects from the variables of an Ansible task what is known of its host, for psfleet/deployment/."""

import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from ansible.plugins.action import ActionBase
from ansible.template import trust_as_template

from psfleet.deployment.host import Cluster, Host
from psfleet.inventory.variables import rules
from trainer.contract.rules import Rule

ROLES = Path(__file__).resolve().parents[2] / "roles"


class RoleValues(dict[str, Any]):
    """Variable of a role -> the host's value, converted by its rule; a role's default if it is not set."""

    def __init__(self, action: ActionBase, variables: Mapping[str, Any]) -> None:
        super().__init__()
        self._action, self._variables = action, variables

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 - variables have many types
        """Return a value that is needed for the first time."""
        default, rule = known_variables()[name]
        given = self._action._templar.template(self._variables.get(name, default))
        return self.setdefault(name, rule.convert(given))


@cache
def known_variables() -> Mapping[str, tuple[object, Rule]]:
    """Return variable -> its default, which Ansible may have to template, and its rule, for all roles."""
    defaults: dict[str, object] = {}
    specifications: dict[str, Mapping[str, object]] = {}
    for role in sorted(ROLES.iterdir()):
        defaults |= loaded(role / "defaults/main.yml")
        for entry in loaded(role / "meta/argument_specs.yml")["argument_specs"].values():
            specifications |= entry["options"]
    of_names = rules(specifications)
    return {
        name: (trust_as_template(value) if isinstance(value, str) else value, of_names[name])
        for name, value in defaults.items()
    }


def loaded(file: Path) -> dict[str, Any]:
    """Return what a YAML file holds, {} if there is none."""
    return dict(yaml.safe_load(file.read_text(encoding="utf-8")) or {}) if file.exists() else {}


def host_of(action: ActionBase, variables: Mapping[str, Any]) -> Host:
    """Return the host of an Ansible task with these variables."""
    cluster = Cluster(**{name: variables[f"cluster_{name}"] for name in Cluster.__dataclass_fields__})
    return Host(
        name=variables["inventory_hostname"],
        cluster=cluster,
        values=RoleValues(action, variables),
        facts=variables["ansible_facts"],
        environments=variables.get("__package_store_result", {}).get("environments", {}),
        signed=variables.get("__ssh_mesh_signed", {}),
        mesh_hosts=variables.get("__wireguard_mesh_known", {}).get("hosts", {}),
        now=time.time(),
    )
