"""The hosts' addresses within a WireGuard mesh, which replace the addresses of the inventory."""

import hashlib
from dataclasses import replace
from ipaddress import IPv6Address
from typing import Any

from trainer.contract.plan import ClusterPlan


def mesh_address(cluster: str, host: str) -> str:
    """Return a host's IPv6 address in the mesh of a cluster, without brackets.

    It is a unique local address (RFC 4193): 40 bits of the hash of the cluster's name, and 64 bits of the
    hash of the host's name. So it stays the same when other hosts are added or removed. Capitals do not
    matter.
    """
    of_cluster, of_host = (hashlib.sha256(name.lower().encode()).digest() for name in (cluster, host))
    return str(IPv6Address(b"\xfd" + of_cluster[:5] + b"\0\0" + of_host[:8]))


def move_into_mesh(plan: ClusterPlan, port: int) -> tuple[ClusterPlan, dict[str, Any]]:
    """Return (the plan with the addresses in the mesh, the fact `cluster_mesh`).

    `port` is the UDP port on which WireGuard listens. The fact has the `port`, and `hosts`: {host: its
    `address` in the mesh, and its `endpoint`, the address of the inventory}.
    """
    addresses = {task.host: mesh_address(plan.cluster_name, task.host) for task in plan.tasks}
    hosts = {task.host: {"address": addresses[task.host], "endpoint": task.address} for task in plan.tasks}
    tasks = tuple(replace(task, address=f"[{addresses[task.host]}]") for task in plan.tasks)
    return replace(plan, tasks=tasks), {"port": port, "hosts": hosts}
