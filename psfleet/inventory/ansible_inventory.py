"""Turns the inventory that Ansible has read into plain data."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.common.yaml import yaml_load
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import AnsibleVaultError, EncryptedString

from psfleet.inventory.ansible_settings import HOST_KEY_VARIABLES
from psfleet.inventory.inventory_files import yaml_problems
from psfleet.inventory.problems import PARENT, InventoryError, InventoryProblem, Unreadable, named, short_path
from psfleet.inventory.reading import Inventory
from psfleet.inventory.ssh_arguments import VARIABLES as SSH_ARGUMENTS
from psfleet.inventory.variables import PREFIX, rules

ROLES = Path(__file__).resolve().parents[2] / "roles"

# Ansible's own variables that psfleet checks.
_OF_ANSIBLE = ("ansible_host", "ansible_port", *HOST_KEY_VARIABLES, *SSH_ARGUMENTS)
_DECRYPTS = "add --ask-vault-pass to the command, or --vault-password-file FILE with the password in it"
# The inventory that Ansible uses if neither an ansible.cfg nor -i names one.
_DEFAULT_INVENTORY = "/etc/ansible/hosts"


def plain_inventory(
    variables: Mapping[str, Any], loader: DataLoader, command_line: Mapping[str, object]
) -> Inventory:
    """Return the inventory of a play as plain data.

    `variables` are the variables of an Ansible task in that play; `command_line` are the variables that -e
    sets. Raises InventoryError if an inventory is missing or is not valid YAML, if no host could be read, or
    if a variable that Ansible needs is encrypted and no password was given.
    """
    _require_hosts(variables)
    _require_passwords(variables)
    known = rules(role_variables())
    groups, hostvars = variables["groups"], variables["hostvars"]
    # No variable lists the child groups of a group; only the inventory object does.
    parent = hostvars._inventory.groups.get(PARENT)
    return Inventory(
        groups={str(name): [str(host) for host in hosts] for name, hosts in groups.items()},
        children=[str(child.name) for child in parent.child_groups] if parent else [],
        variables={str(host): _variables_of(hostvars[host], known) for host in groups.get(PARENT, ())},
        defaults=loader.load_from_file(str(ROLES / "trainer/defaults/main.yml"), unsafe=True),
        rules=known,
        roles=[file.parents[1].name for file in _specification_files()],
        command_line=command_line,
    )


@cache
def role_variables() -> Mapping[str, Mapping[str, object]]:
    """Return {variable: its entry in argument_specs} for the variables of all roles.

    If several roles have a variable, the last role by name counts. The function does not use Ansible's
    DataLoader, which notes the place of every value and so takes ten times as long.
    """
    found: dict[str, Mapping[str, object]] = {}
    for file in _specification_files():
        for entry in yaml_load(file.read_bytes())["argument_specs"].values():
            found |= entry["options"]
    return found


def _specification_files() -> list[Path]:
    return sorted(ROLES.glob("*/meta/argument_specs.yml"))


def _require_hosts(variables: Mapping[str, Any]) -> None:
    sources = variables["ansible_inventory_sources"]
    missing = [Path(name) for name in sources if "," not in name and not Path(name).exists()]
    cure = "make one (cp -r inventory/sample/one_ps_three_workers inventory/cluster, or another of "
    cure += "inventory/sample) and edit it, or name yours with -i"
    if missing == [Path(_DEFAULT_INVENTORY)]:
        cure = f"type it in {ROLES.parent}, whose ansible.cfg names inventory/cluster, or name yours with -i"
    problems = [
        InventoryProblem(f"there is no inventory at {short_path(source)}", cure=cure) for source in missing
    ]
    problems += yaml_problems(sources)
    if not variables["groups"]["all"] and not problems:
        what = "the inventory names no host that could be read; Ansible's warnings above say why"
        problems.append(InventoryProblem(f"{what}, for a YAML file the one of the 'yaml' plugin"))
    if problems:
        raise InventoryError(problems)


def _require_passwords(variables: Mapping[str, Any]) -> None:
    """Raise InventoryError if variables `ansible_*` of a host of tf_cluster cannot be decrypted."""
    hosts = [host for host in variables["groups"].get(PARENT, ()) if _encrypted(variables["hostvars"], host)]
    if hosts:
        what = f"variables of {named(hosts)} are encrypted, and no password was given that opens them"
        raise InventoryError([InventoryProblem(what, cure=_DECRYPTS)])


def _encrypted(hostvars: Any, host: str) -> bool:  # noqa: ANN401 - Ansible's own have no types
    """Return whether a variable `ansible_*` of the host is encrypted and cannot be decrypted.

    Raises AnsibleError for any other error.
    """
    try:
        values = hostvars.raw_get(host)
        for name in values:
            # Other variables may be encrypted with someone else's password, which we do not need.
            if name.startswith("ansible_") and isinstance(values[name], EncryptedString):
                str(values[name])
    except AnsibleError as error:
        cause: BaseException | None = error
        while cause and not isinstance(cause, AnsibleVaultError):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        return True
    return False


def _variables_of(values: Mapping[str, Any], known: Mapping[str, object]) -> dict[str, object]:
    """Return {variable: value} of a host.

    Values are evaluated for the variables in `known`, which roles know, and in `_OF_ANSIBLE`; others are
    None. If Ansible cannot evaluate a value, it is an Unreadable for variables of the trainer and
    ansible_host; other variables are left out then.
    """
    found: dict[str, object] = {}
    for name in values:
        if name not in known and name not in _OF_ANSIBLE:
            found[str(name)] = None
            continue
        try:
            found[str(name)] = _whole(values[name])
        except AnsibleError as error:
            # Another role's variable may depend on what Ansible learns later, such as facts.
            if name.startswith((PREFIX, "ansible_host")):
                found[str(name)] = Unreadable(str(error))
    return found


def _whole(value: object) -> object:
    """Return a copy of the value with text as the keys of all mappings, and with lists in place of tuples.

    In YAML, a key may be an integer. Example: _whole({1: (2, 3)}) -> {"1": [2, 3]}
    """
    if isinstance(value, Mapping):
        return {str(key): _whole(part) for key, part in value.items()}
    return [_whole(part) for part in value] if isinstance(value, (list, tuple)) else value
