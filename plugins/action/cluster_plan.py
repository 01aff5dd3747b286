"""Make the cluster plan of the inventory, or fail with everything that is wrong with it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.inventory.helpers import sort_groups
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the trainer package is not installed

from plugins.controller_files import data_source, program_fact
from trainer.inventory import Inventory, Unreadable, common_values, data_directories, read_inventory
from trainer.inventory_problems import (
    PARENT,
    InventoryError,
    InventoryFiles,
    InventoryProblem,
    describe,
    shown,
)
from trainer.inventory_variables import PREFIX, rules
from trainer.proof import proof_settings, require_provable
from trainer.run_settings import run_program, run_settings

ROLES = Path(__file__).resolve().parents[2] / "roles"

# What other roles need to know of the trainer's variables, as the fact `cluster_paths`.
PATHS = ("install_directory", "configuration_directory", "state_directory", "log_directory")


class ActionModule(ActionBase):
    """Argument `proof`: the replication of a run of the proof by partition, "" for what the inventory trains.

    It reaches no host.
    """

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the facts that docs/architecture.md describes, or fail with every problem."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        command_line = load_extra_vars(self._loader)
        files = InventoryFiles(_sources(variables), _groups_of(variables), command_line)
        try:
            _require_hosts(variables)
            facts = _facts(self._inventory(variables, command_line), str(self._task.args.get("proof", "")))
        except InventoryError as error:
            return result | {"failed": True, "msg": describe(error.problems, files)}
        return result | facts | {"changed": False}

    def _inventory(self, variables: Mapping[str, Any], command_line: Mapping[str, object]) -> Inventory:
        specifications: dict[str, Any] = {}
        roles = []
        for file in sorted(ROLES.glob("*/meta/argument_specs.yml")):
            roles.append(file.parents[1].name)
            for entry in self._loader.load_from_file(str(file))["argument_specs"].values():
                specifications |= entry.get("options", {})
        known = rules(specifications)
        defaults = self._loader.load_from_file(str(ROLES / "trainer/defaults/main.yml"))
        groups = variables["groups"]
        return Inventory(
            groups={str(name): [str(host) for host in hosts] for name, hosts in groups.items()},
            children=_children(variables),
            variables={
                str(host): _variables_of(variables["hostvars"], host, known)
                for host in groups.get(PARENT, ())
            },
            defaults=defaults,
            rules=known,
            roles=roles,
            command_line=command_line,
        )


def _facts(inventory: Inventory, proof: str) -> dict[str, Any]:
    """Return the facts of every play; raises InventoryError with every problem, of the files here too."""
    values, hosts = common_values(inventory), tuple(inventory.variables)
    program, program_problems = program_fact(values, hosts)
    data, data_problems = data_source(values, hosts)
    problems = [*program_problems, *data_problems]
    try:
        plan, settings = read_inventory(inventory)
    except InventoryError as error:
        raise InventoryError([*error.problems, *problems]) from error
    if problems:
        raise InventoryError(problems)
    if proof:
        require_provable(plan, inventory.command_line)
        settings = {task: proof_settings(of, proof, plan) for task, of in settings.items()}
        program = {}
    return {
        "cluster_plan": {**plan.to_json(), "ps_hosts": plan.ps_hosts, "worker_hosts": plan.worker_hosts},
        "cluster_settings": run_settings(
            plan, settings, run_program(program, values[PREFIX + "install_directory"])
        ),
        "cluster_paths": {name: values[PREFIX + name] for name in PATHS},
        "cluster_program": program,
        "cluster_data": {"source": data, "directories": data_directories(plan, settings)} if data else {},
    }


def _sources(variables: Mapping[str, Any]) -> list[str]:
    return [str(source) for source in variables.get("ansible_inventory_sources") or ()]


def _require_hosts(variables: Mapping[str, Any]) -> None:
    """Raise InventoryError where an inventory is missing or held no host that could be read."""
    sources = _sources(variables)
    missing = [source for source in sources if "," not in source and not Path(source).exists()]
    problems = [
        InventoryProblem(
            f"there is no inventory at {shown(Path(source))}",
            cure="make one (cp -r inventory/sample/one_ps_three_workers inventory/cluster, or another of "
            "inventory/sample) and edit it, or name yours with -i",
        )
        for source in missing
    ]
    if not variables["groups"]["all"] and not missing:
        problems.append(InventoryProblem("the inventory names no host that could be read"))
    if problems:
        raise InventoryError(problems)


def _children(variables: Mapping[str, Any]) -> list[str]:
    # No variable tells which groups are children of another: the inventory object does.
    group = variables["hostvars"]._inventory.groups.get(PARENT)
    return [str(child.name) for child in group.child_groups] if group else []


def _groups_of(variables: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Return each host's groups, the one whose variables win first."""
    return {
        str(host.name): [str(group.name) for group in reversed(sort_groups(host.get_groups()))]
        for host in variables["hostvars"]._inventory.hosts.values()
    }


def _variables_of(hostvars: Mapping[str, Any], host: str, known: Mapping[str, object]) -> dict[str, object]:
    """Return the variables set for a host; those that roles know with their values, the others by name."""
    found: dict[str, object] = {}
    values = hostvars[host]
    for name in values:
        if name not in known and name != "ansible_host":
            found[str(name)] = None
            continue
        try:
            found[str(name)] = _whole(values[name])
        except AnsibleError as error:
            # Another role's variable may be made of what is only known later, such as facts.
            if name.startswith(PREFIX):
                found[str(name)] = Unreadable(str(error))
    return found


def _whole(value: object) -> object:
    """Return the value with all that is in it: Ansible makes the parts of lists and mappings when asked."""
    if isinstance(value, Mapping):
        return {str(key): _whole(part) for key, part in value.items()}
    return [_whole(part) for part in value] if isinstance(value, (list, tuple)) else value
