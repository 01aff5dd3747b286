"""Inventory in; the cluster plan and every task's settings out, or every problem that the inventory has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from psfleet.inventory.groups import group_problems
from psfleet.inventory.placement import Placement, place
from psfleet.inventory.problems import InventoryError, InventoryProblem, named
from psfleet.inventory.variables import HOST_VARIABLES, PREFIX, closest_name
from trainer.contract.plan import ClusterPlan
from trainer.contract.settings import RULES, Rule, TrainingSettings, convert_all, replication_problems

# What ProtectHome and PrivateTmp of the units hide.
UNSEEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 - nothing is written there


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
    placement = place(inventory.groups, values, inventory.variables)
    program = any(chosen.get("trainer_program") for chosen in values.values())
    problems = [
        *group_problems(inventory.groups, inventory.children, program=program),
        *_unknown_names(inventory),
        *refused,
        *_differences(inventory, values),
        *placement.problems,
        *_contradictions(inventory, values),
        *_data_problems(placement, values),
    ]
    if problems:
        raise InventoryError(problems)
    tasks = placement.tasks
    plan = ClusterPlan(values[tasks[0].host]["trainer_cluster_name"], tasks)
    return plan, {task.name: _settings(values[task.host], placement.settings[task.name]) for task in tasks}


def _settings(values: Mapping[str, Any], own: Mapping[str, object]) -> TrainingSettings:
    chosen = {name: values[PREFIX + name] for name in RULES}
    return TrainingSettings.from_mapping({**chosen, **own, "data_dir": _data_directory(values, own)})


def _data_directory(values: Mapping[str, Any], own: Mapping[str, object]) -> object:
    """Return where a task reads its data: where it was told, else where deploy.yml carries them."""
    told = own.get("data_dir") or values.get("trainer_data_dir")
    carried = f"{values['trainer_install_directory']}/data" if values.get("trainer_data_source") else ""
    return told or carried


def data_directories(plan: ClusterPlan, settings: Mapping[str, TrainingSettings]) -> dict[str, str]:
    """Return host -> the folder where its tasks read data; a host with ps alone reads none."""
    return {task.host: settings[task.name].data_dir for task in plan.tasks if task.job != "ps"}


def common_values(inventory: Inventory) -> dict[str, Any]:
    """Return the converted variables of the cluster's first host, less those that are refused."""
    values, _ = _converted(inventory)
    return next(iter(values.values()), {})


def _contradictions(inventory: Inventory, values: Mapping[str, Mapping[str, Any]]) -> list[InventoryProblem]:
    """Return what two variables of the whole cluster cannot both say."""
    hosts = tuple(values)
    if not hosts:
        return []
    chosen = values[hosts[0]]
    settings = {name.removeprefix(PREFIX): value for name, value in chosen.items()}
    found = replication_problems(settings, _worker_count(inventory, values), PREFIX)
    problems = [InventoryProblem(what, PREFIX + setting, hosts) for setting, what in found.items()]
    if chosen.get("trainer_model") == "partition":
        problems += _partition_problems(chosen, hosts)
    return problems


def _partition_problems(chosen: Mapping[str, Any], hosts: tuple[str, ...]) -> list[InventoryProblem]:
    """Return what model partition, of which each worker has a part, cannot be trained with."""
    problems = []
    if chosen.get("trainer_replication") == "local":
        what = "trainer_model is 'partition' with trainer_replication 'local', which leaves worker 0 alone"
        what = f"{what} with its part; expected another replication, or another model"
        problems.append(InventoryProblem(what, "trainer_replication", hosts))
    if chosen.get("trainer_shard_data"):
        what = "trainer_shard_data is true with trainer_model 'partition', which gives each worker its own"
        problems.append(InventoryProblem(f"{what} examples; expected false", "trainer_shard_data", hosts))
    return problems


def _data_problems(placement: Placement, values: Mapping[str, Mapping[str, Any]]) -> list[InventoryProblem]:
    """Return where tasks would not see their data, and where data would be carried to two places."""
    problems: dict[InventoryProblem, None] = {}
    directories: dict[str, dict[str, None]] = {}
    for task in placement.tasks:
        if task.job == "ps":
            continue
        own = placement.settings[task.name]
        directory = str(_data_directory(values[task.host], own))
        directories.setdefault(task.host, {})[directory] = None
        if any(PurePosixPath(directory).is_relative_to(hidden) for hidden in UNSEEN):
            what = (
                f"the data_dir of {task.host} is {directory!r}; expected one outside of {', '.join(UNSEEN)}"
            )
            variable = PREFIX + ("worker_tasks" if own.get("data_dir") else "data_dir")
            problems[InventoryProblem(f"{what}, which tasks do not see", variable, (task.host,))] = None
    for host, found in directories.items():
        if values[host].get("trainer_data_source") and len(found) > 1:
            what = f"the tasks of {host} read {' and '.join(found)}; expected one data_dir on a host"
            what = f"{what}, for trainer_data_source is carried there once"
            problems[InventoryProblem(what, "trainer_worker_tasks", (host,))] = None
    return list(problems)


def _worker_count(inventory: Inventory, values: Mapping[str, Mapping[str, Any]]) -> int | None:
    """Return how many workers there are, None where a host does not say how many are its own."""
    asked = [values.get(host, {}).get("trainer_worker_tasks") for host in inventory.groups.get("worker", ())]
    return None if None in asked else sum(len(tasks) for tasks in asked if tasks)


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
    hosts_with: dict[tuple[str, str, str], list[str]] = {}
    converted = {}
    for host, variables in inventory.variables.items():
        given = {**inventory.defaults, **variables}
        known = {name: value for name, value in given.items() if name in inventory.rules}
        converted[host], problems = convert_all(known, inventory.rules, str)
        for problem in problems:
            variable, found = problem.name.partition("[")[0], f"{problem.name} {_found(problem.value)}"
            hosts_with.setdefault((variable, found, problem.expected), []).append(host)
    refused = []
    for (name, found, expected), hosts in sorted(hosts_with.items()):
        where = "" if len(hosts) == len(converted) else f" on {named(hosts)}"
        refused.append(InventoryProblem(f"{found}{where}; expected {expected}", name, tuple(hosts)))
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
            what = f"{name} is {seen}; expected one value for the whole cluster"
            problems.append(InventoryProblem(what, name, tuple(values), everywhere=True))
    return problems
