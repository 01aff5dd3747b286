"""Inventory in; the cluster plan and every task's settings out, or every problem that the inventory has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from trainer.inventory_problems import PARENT, InventoryError, InventoryProblem, named
from trainer.inventory_variables import HOST_VARIABLES, PREFIX, closest_name
from trainer.placement import place
from trainer.plan import JOBS, ClusterPlan
from trainer.settings import RULES, Rule, TrainingSettings


@dataclass(frozen=True)
class Inventory:
    """The inventory as plain data.

    `groups` maps every group to its hosts in inventory order; `children` are the child groups of tf_cluster;
    `variables` maps each host of tf_cluster to what is set for it, by files or on the command line;
    `defaults` are the trainer role's; `rules` holds every variable that a role knows; `roles` are the roles'
    names; `command_line` is what -e sets.
    """

    groups: Mapping[str, Sequence[str]]
    children: Sequence[str]
    variables: Mapping[str, Mapping[str, object]]
    defaults: Mapping[str, object]
    rules: Mapping[str, Rule]
    roles: Sequence[str] = ("trainer",)
    command_line: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Unreadable:
    """Stands for a variable's value that could not be had, with Ansible's reason."""

    reason: str


def read_inventory(inventory: Inventory) -> tuple[ClusterPlan, dict[str, TrainingSettings]]:
    """Return the plan, and the settings of each task (task name -> settings).

    Raises InventoryError with every problem that was found.
    """
    values, refused = _converted(inventory)
    tasks, misplaced = place(inventory.groups, values, inventory.variables)
    problems = [
        *_group_problems(inventory),
        *_unknown_names(inventory),
        *refused,
        *_differences(inventory, values),
        *misplaced,
    ]
    if problems:
        raise InventoryError(problems)
    plan = ClusterPlan(values[tasks[0].host]["trainer_cluster_name"], tasks)
    return plan, {task.name: _settings(values[task.host]) for task in tasks}


def _settings(values: Mapping[str, Any]) -> TrainingSettings:
    return TrainingSettings.from_mapping({name: values[PREFIX + name] for name in RULES})


def _group_problems(inventory: Inventory) -> list[InventoryProblem]:
    if PARENT not in inventory.groups:
        hint = _similar_group(PARENT, inventory.groups)
        what = f"there is no group {PARENT}{hint}; expected {PARENT} with the child groups ps and worker"
        return [InventoryProblem(what)]
    problems = [*_job_problems(inventory), *_stray_groups(inventory), *_stray_hosts(inventory)]
    return [InventoryProblem(problem) for problem in problems]


def _similar_group(name: str, groups: Iterable[str]) -> str:
    close = get_close_matches(name, sorted(set(groups) - {"all", "ungrouped", *JOBS, PARENT}), n=1)
    return f" (there is {close[0]!r})" if close else ""


def _job_problems(inventory: Inventory) -> list[str]:
    problems = []
    for job in JOBS:
        hosts = inventory.groups.get(job)
        required = job != "chief"
        if hosts is None and required and job not in map(_meant_job, inventory.children):
            hint = _similar_group(job, inventory.groups)
            expected = f"a child group {job} of {PARENT} with one host or more"
            problems.append(f"there is no group {job}{hint}; expected {expected}")
        elif hosts is not None and not hosts:
            problems.append(f"the group {job} is empty; expected one host or more in it")
        elif hosts and job not in inventory.children:
            problems.append(f"the group {job} is not below {PARENT}; expected it among {PARENT}'s children")
    return problems


def _meant_job(group: str) -> str:
    """Return the job whose misspelling the group's name is, "" where it is none."""
    return "" if group in JOBS else next(iter(get_close_matches(group, JOBS, n=1)), "")


def _stray_groups(inventory: Inventory) -> list[str]:
    problems = []
    for group in inventory.children:
        if group not in JOBS:
            close = get_close_matches(group, JOBS, n=1)
            advice = (
                f"did you mean {close[0]}?" if close else f"expected groups of another kind beside {PARENT}"
            )
            problems.append(f"the group {group} below {PARENT} is neither ps nor worker; {advice}")
    return problems


def _stray_hosts(inventory: Inventory) -> list[str]:
    placed = {host for group in (*inventory.children, *JOBS) for host in inventory.groups.get(group, ())}
    stray = [host for host in inventory.groups[PARENT] if host not in placed]
    if not stray:
        return []
    return [f"neither ps nor worker holds {named(stray)} of {PARENT}; expected each host in one or both"]


def _unknown_names(inventory: Inventory) -> list[InventoryProblem]:
    hosts_with: dict[str, list[str]] = {name: [] for name in inventory.command_line}
    for host, variables in inventory.variables.items():
        for name in variables:
            hosts_with.setdefault(name, []).append(host)
    known = tuple(inventory.rules)
    prefixes = tuple(f"{role}_" for role in inventory.roles)
    problems = []
    for name, hosts in hosts_with.items():
        given = name in inventory.command_line
        advice = closest_name(name, known, prefixes, on_command_line=given)
        if advice:
            what = f"{name} is a variable that no role knows; {advice}"
            problems.append(InventoryProblem(what, name, tuple(hosts)))
    return problems


def _converted(inventory: Inventory) -> tuple[dict[str, dict[str, Any]], list[InventoryProblem]]:
    """Return host -> variable -> value with the defaults, less what is refused; and what is refused."""
    rules = inventory.rules
    defaults = {
        name: rules[name].convert(value) for name, value in inventory.defaults.items() if name in rules
    }
    hosts_with: dict[tuple[str, str], list[str]] = {}
    converted = {host: dict(defaults) for host in inventory.variables}
    for host, variables in inventory.variables.items():
        for name in variables.keys() & inventory.rules.keys():
            rule = inventory.rules[name]
            try:
                converted[host][name] = rule.convert(variables[name])
            except ValueError:
                converted[host].pop(name, None)
                hosts_with.setdefault((name, _found(variables[name])), []).append(host)
    refused = []
    for (name, found), hosts in sorted(hosts_with.items()):
        where = "" if len(hosts) == len(converted) else f" on {named(hosts)}"
        what = f"{name} {found}{where}; expected {inventory.rules[name].expected}"
        refused.append(InventoryProblem(what, name, tuple(hosts)))
    return converted, refused


def _found(value: object) -> str:
    return f"cannot be read ({value.reason})" if isinstance(value, Unreadable) else f"is {value!r}"


def _differences(inventory: Inventory, values: Mapping[str, Mapping[str, Any]]) -> list[InventoryProblem]:
    problems = []
    for name in inventory.rules:
        if not name.startswith(PREFIX) or name in HOST_VARIABLES:
            continue
        hosts_with: dict[str, list[str]] = {}
        for host, chosen in values.items():
            if name in chosen:
                hosts_with.setdefault(repr(chosen[name]), []).append(host)
        if len(hosts_with) > 1:
            seen = ", ".join(f"{value} on {named(hosts)}" for value, hosts in hosts_with.items())
            setters = tuple(host for host in values if name in inventory.variables[host])
            what = f"{name} is {seen}; expected one value for the whole cluster"
            problems.append(InventoryProblem(what, name, setters, everywhere=True))
    return problems
