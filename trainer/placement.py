"""Which port, address and GPUs each task of the inventory gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainer.inventory_problems import InventoryProblem, named
from trainer.inventory_variables import PORT_RANGE, TRAINER_RULES, bracketed
from trainer.plan import JOBS, Job, Task

# Without one of these a host has no place in the plan; what is wrong with it has been said then.
_NEEDED = {
    "trainer_address",
    "trainer_base_port",
    "trainer_ps_port",
    "trainer_worker_port",
    "trainer_chief_port",
    "trainer_worker_gpus",
}


def place(
    groups: Mapping[str, Sequence[str]],
    values: Mapping[str, Mapping[str, Any]],
    variables: Mapping[str, Mapping[str, object]],
) -> tuple[tuple[Task, ...], list[InventoryProblem]]:
    """Return the tasks, ps first, and what is wrong with their ports and addresses.

    `values` holds each host's converted variables, `variables` also those that are not the trainer's. A host
    that lacks a converted variable gets no task.
    """
    problems: list[InventoryProblem] = []
    addresses: dict[str, str] = {}
    ports: dict[str, dict[Job, int]] = {}
    for host, chosen in values.items():
        if not chosen.keys() >= _NEEDED:
            continue
        ports[host] = _ports([job for job in JOBS if host in groups.get(job, ())], chosen)
        try:
            addresses[host] = _address(host, chosen["trainer_address"], variables[host])
        except ValueError as error:
            expected = TRAINER_RULES["trainer_address"].expected
            what = f"the address of {host} is {str(error)!r}; expected {expected}"
            problems.append(InventoryProblem(what, "ansible_host", (host,)))
    tasks = tuple(
        Task(job, index, host, addresses.get(host, ""), ports[host][job], _gpus(job, values[host]))
        for job in JOBS
        for index, host in enumerate(groups.get(job, ()))
        if job in ports.get(host, ())
    )
    return tasks, [*problems, *_port_problems(tasks), *_shared_addresses(addresses)]


def _gpus(job: Job, values: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(values["trainer_worker_gpus"]) if job == "worker" else ()


def _ports(jobs: Sequence[Job], values: Mapping[str, Any]) -> dict[Job, int]:
    """Return each job's port: the one that was asked for, else the next one from the base that is not."""
    asked: dict[Job, int] = {
        job: values[f"trainer_{job}_port"] for job in jobs if values[f"trainer_{job}_port"]
    }
    ports = {}
    following = values["trainer_base_port"]
    for job in jobs:
        if job in asked:
            ports[job] = asked[job]
            continue
        while following in asked.values():
            following += 1
        ports[job] = following
        following += 1
    return ports


def _port_problems(tasks: Sequence[Task]) -> list[InventoryProblem]:
    problems = []
    holders: dict[tuple[str, int], Task] = {}
    for task in tasks:
        other = holders.setdefault((task.host, task.port), task)
        if other is not task:
            what = f"{other.name} and {task.name} on {task.host} have port {task.port}; expected one each"
            problems.append(InventoryProblem(what, f"trainer_{task.job}_port", (task.host,)))
        if task.port > PORT_RANGE[1]:
            what = f"{task.name} on {task.host} would get port {task.port}, above {PORT_RANGE[1]}"
            what = f"{what}; expected a lower trainer_base_port"
            problems.append(InventoryProblem(what, "trainer_base_port", (task.host,)))
    return problems


def _address(host: str, asked: str, variables: Mapping[str, object]) -> str:
    """Return where the others reach the host; raises ValueError with an address that cannot be one."""
    address = bracketed(asked or str(variables.get("ansible_host") or host))
    try:
        return str(TRAINER_RULES["trainer_address"].convert(address))
    except ValueError as error:
        raise ValueError(address) from error


def _shared_addresses(addresses: Mapping[str, str]) -> list[InventoryProblem]:
    hosts_at: dict[str, list[str]] = {}
    for host, address in addresses.items():
        hosts_at.setdefault(address.lower(), []).append(host)
    return [
        InventoryProblem(
            f"{named(hosts)} have one address, {address}; expected one inventory name for each machine "
            "(a host in both groups runs both tasks)"
        )
        for address, hosts in hosts_at.items()
        if len(hosts) > 1
    ]
