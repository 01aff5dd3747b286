"""Computes the index, port, address and GPUs of each task that the inventory asks for."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psfleet.inventory.addresses import ValuesByHost, host_addresses
from psfleet.inventory.problems import InventoryProblem, named
from psfleet.inventory.requested_tasks import RequestedTask
from psfleet.inventory.variables import PLACING_VARIABLES, PORT_RANGE
from trainer.contract.plan import JOBS, Job, PlannedTask
from trainer.host.wording import grouped

# A host that lacks one of these gets no place in the plan; the problem is reported elsewhere.
_NEEDED = PLACING_VARIABLES | {"trainer_ps_may_use_gpus"}
_MANY: Mapping[Job, str] = {"ps": "ps", "worker": "workers"}


@dataclass(frozen=True)
class Placement:
    """Where the tasks of an inventory run, and the `problems` that were found.

    `tasks` are sorted by job (ps, worker, chief, evaluator) and index. `settings` is {name of a
    task: {setting: value}}, with only the settings that the task has of its own.
    """

    tasks: tuple[PlannedTask, ...]
    settings: Mapping[str, Mapping[str, object]]
    problems: tuple[InventoryProblem, ...]


@dataclass(frozen=True)
class _Place:
    """A task, at first with index 0; `port_variable` is the name of the variable that sets its port."""

    task: PlannedTask
    requested: RequestedTask
    port_variable: str


def place_tasks(
    groups: Mapping[str, Sequence[str]], values: ValuesByHost, variables: ValuesByHost
) -> Placement:
    """Return where the tasks run: index, port, address and GPUs of each, and the problems with them.

    `groups` is {group: its hosts}. `values` has each host's converted variables, `variables` all of its
    variables. A host that lacks a converted variable in _NEEDED gets no task; its problem is reported
    elsewhere.
    """
    whole = {host: chosen for host, chosen in values.items() if chosen.keys() >= _NEEDED}
    addresses, problems = host_addresses(whole, variables)
    on_host: dict[str, list[_Place]] = {}
    for host, chosen in whole.items():
        jobs = [job for job in JOBS if host in groups.get(job, ())]
        on_host[host], uneven = _places(host, jobs, chosen, addresses.get(host, ""))
        problems += uneven
    placed: list[_Place] = []
    for job in JOBS:
        hosts = groups.get(job, ())
        members = [member for host in hosts for member in on_host.get(host, ()) if member.task.job == job]
        placed += _with_indices(members)
        if all(host in on_host for host in hosts):
            problems += _index_problems(job, members)
    problems += _duplicate_problems(placed)
    settings = {member.task.name: member.requested.settings for member in placed}
    return Placement(tuple(member.task for member in placed), settings, tuple(problems))


def _places(
    host: str, jobs: Sequence[Job], values: Mapping[str, Any], address: str
) -> tuple[list[_Place], list[InventoryProblem]]:
    """Return (the tasks of one host, by job and as requested; the problems with their GPUs).

    `jobs` are the jobs that the host's groups give it, `address` its address. All indices are 0.
    """
    requested: list[tuple[Job, RequestedTask]] = []
    gpus: list[tuple[int, ...]] = []
    problems: list[InventoryProblem] = []
    for job in jobs:
        # A host has at most one chief and one evaluator, which have no GPUs.
        tasks = values.get(f"trainer_{job}_tasks", (RequestedTask(),))
        of_host = values.get(f"trainer_{job}_gpus", ())
        requested += [(job, task) for task in tasks]
        gpus += _gpus_of_tasks(tasks, of_host)
        problems += _gpu_problems(host, job, tasks, of_host, values["trainer_ps_may_use_gpus"])
    places = [
        _Place(PlannedTask(job, 0, host, address, port, seen), task, variable)
        for (job, task), (port, variable), seen in zip(
            requested, _ports(requested, values), gpus, strict=True
        )
    ]
    return places, problems


def _ports(
    requested: Sequence[tuple[Job, RequestedTask]], values: Mapping[str, Any]
) -> list[tuple[int, str]]:
    """Return (port, variable that sets it) for each task of a host, in the order of `requested`.

    A task without a port of its own gets the first unused port, counted from trainer_<job>_port if it is set,
    else from trainer_base_port.
    """
    first: dict[str, int] = {"trainer_base_port": values["trainer_base_port"]}
    variables = [_port_variable(job, task, values) for job, task in requested]
    fixed: dict[int, int] = {}
    for position, ((_, task), variable) in enumerate(zip(requested, variables, strict=True)):
        if task.port:
            fixed[position] = task.port
        elif variable not in first:
            fixed[position] = first[variable] = values[variable]
    taken = set(fixed.values())
    ports = []
    for position, variable in enumerate(variables):
        port = fixed.get(position)
        if port is None:
            port = next(port for port in itertools.count(first[variable]) if port not in taken)
            taken.add(port)
        ports.append((port, variable))
    return ports


def _port_variable(job: Job, task: RequestedTask, values: Mapping[str, Any]) -> str:
    if task.port:
        return f"trainer_{job}_tasks"
    return f"trainer_{job}_port" if values[f"trainer_{job}_port"] else "trainer_base_port"


def _gpus_of_tasks(tasks: Sequence[RequestedTask], gpus: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the GPUs of each of a host's tasks of one job, in the order of `tasks`.

    A task has the GPUs that it requests; the others share `gpus` evenly, in order. GPUs that cannot be shared
    evenly are left unused. Example: two tasks without a request and [0, 1, 2] -> [(0,), (1,)]
    """
    share = len(gpus) // max(sum(task.gpus is None for task in tasks), 1)
    shares = (tuple(gpus[start : start + share]) for start in itertools.count(step=share))
    return [next(shares) if task.gpus is None else task.gpus for task in tasks]


def _gpu_problems(
    host: str, job: Job, tasks: Sequence[RequestedTask], gpus: Sequence[int], ps_may: bool
) -> Iterator[InventoryProblem]:
    sharing = sum(task.gpus is None for task in tasks)
    if sharing and len(gpus) % sharing:
        what = (
            f"trainer_{job}_gpus {list(gpus)} of {host} are {len(gpus)} GPUs for {sharing} {_MANY[job]}; "
            f"expected the same number for each, or gpus in each task of trainer_{job}_tasks"
        )
        yield InventoryProblem(what, f"trainer_{job}_tasks", (host,))
    if job == "ps" and any(_gpus_of_tasks(tasks, gpus)) and not ps_may:
        of_tasks = any(task.gpus for task in tasks)
        variable = "trainer_ps_tasks" if of_tasks else "trainer_ps_gpus"
        found = f"{variable} of {host} asks for GPUs" if of_tasks else f"{variable} of {host} is {list(gpus)}"
        what = (
            f"{found}; expected none, because a ps leaves them to the workers, or trainer_ps_may_use_gpus: "
            "true"
        )
        yield InventoryProblem(what, variable, (host,))


def _with_indices(members: Sequence[_Place]) -> list[_Place]:
    """Return the tasks of a job, sorted by index. A task that requests no index gets the next free one.

    So does a task whose index is too high, or was requested by a task before it.
    """
    indexed: dict[int, _Place] = {}
    others = []
    for member in members:
        index = member.requested.index
        if index is None or index >= len(members) or index in indexed:
            others.append(member)
        else:
            indexed[index] = member
    free = (index for index in range(len(members)) if index not in indexed)
    indexed |= dict(zip(free, others, strict=False))
    return [
        replace(indexed[index], task=replace(indexed[index].task, index=index)) for index in sorted(indexed)
    ]


def _index_problems(job: Job, members: Sequence[_Place]) -> Iterator[InventoryProblem]:
    requested = [(member.requested.index, member.task.host) for member in members]
    hosts_with = grouped((index, host) for index, host in requested if index is not None)
    at_fault = [
        host
        for index, hosts in hosts_with.items()
        if index >= len(members) or len(hosts) > 1
        for host in hosts
    ]
    if at_fault:
        given = ", ".join(_occurrences(index, hosts_with[index]) for index in sorted(hosts_with))
        expected = (
            f"each index from 0 to {len(members) - 1} once, because there are {len(members)} tasks of {job}"
        )
        what = f"the indices in trainer_{job}_tasks are {given}; expected {expected}"
        yield InventoryProblem(what, f"trainer_{job}_tasks", tuple(dict.fromkeys(at_fault)))


def _occurrences(index: int, hosts: Sequence[str]) -> str:
    often = f" {len(hosts)} times" if len(hosts) > 1 else ""
    return f"{index}{often} on {named(list(dict.fromkeys(hosts)))}"


def _duplicate_problems(placed: Sequence[_Place]) -> Iterator[InventoryProblem]:
    """Yield a problem for each port or GPU that two tasks of a host share, and each port that is too high."""
    holders: dict[tuple[str, str, int], PlannedTask] = {}
    for member in placed:
        task = member.task
        of_gpus = f"trainer_{task.job}_{'gpus' if member.requested.gpus is None else 'tasks'}"
        taken = [("port", task.port, "one each", member.port_variable)]
        taken += [("GPU", gpu, "one task for each GPU", of_gpus) for gpu in task.gpus]
        for kind, number, expected, variable in taken:
            other = holders.setdefault((task.host, kind, number), task)
            if other is not task:
                what = f"{other.name} and {task.name} on {task.host} have {kind} {number}"
                yield InventoryProblem(f"{what}; expected {expected}", variable, (task.host,))
        if task.port > PORT_RANGE[1]:
            what = f"{task.name} on {task.host} would get port {task.port}, above {PORT_RANGE[1]}"
            what = f"{what}; expected a lower {member.port_variable}"
            yield InventoryProblem(what, member.port_variable, (task.host,))
