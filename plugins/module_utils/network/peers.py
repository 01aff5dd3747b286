"""Listens at the ports of this host's tasks for doctor.yml, and connects to the ports of other hosts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..checks.name_checks import names_in, resolve_names
from ..checks.port_checks import is_doctor, running_units, task_ports
from ..host.port_holders import read_holders
from .peer_probes import Peer, fork_listener, listen_on, probe_all, this_machine


def listen(values: Mapping[str, Any]) -> dict[str, Any]:
    """Listen at the free ports of this host's tasks; return the answer of `host_doctor`, `state: listening`.

    `values` are the module's arguments. The answer has:

    - `machine`: this machine's identifier. `held`: the ports that other processes hold, sorted.
    - `free`: the ports where it listens now; not the port of a running task, which may be about to listen.
    - `listener`: the arguments for `end_listener`; {} if no port is free.
    """
    tasks = task_ports([task for task in values["tasks"] if task["host"] == values["host"]])
    running = running_units(tasks)
    holders = read_holders([task.port for task in tasks])
    held = {holder.port for holder in holders if not is_doctor(holder)}
    idle = [task for task in tasks if task.port not in held and not running.keys() & set(task.units)]
    servers, listener = listen_on([task.port for task in idle]), {}
    if servers:
        name, seconds = values["host"], values["seconds"]
        listener = fork_listener(servers.values(), name, seconds, lambda: bool(running_units(idle)))
    return {"machine": this_machine(), "free": [*servers], "held": sorted(held), "listener": listener}


def probe_peers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Connect to the ports of the other hosts' tasks; return the answer of `host_doctor`, `state: probed`.

    `values` are the module's arguments. The answer has `names`, {name in the plan: its IP addresses here},
    and `probes`, the results in the form of `probe_all`.
    """
    tasks = [task for task in values["tasks"] if task["host"] != values["host"]]
    names = resolve_names(names_in({task["host"]: task["address"] for task in tasks}))
    peers = [Peer(task["host"], task["address"], int(task["port"])) for task in tasks]
    addresses = {name: resolution.addresses for name, resolution in names.items()}
    return {"names": addresses, "probes": probe_all(peers)}
