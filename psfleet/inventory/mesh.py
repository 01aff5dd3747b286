"""The addresses that the hosts of a plan have in a mesh of WireGuard, in place of those in the inventory."""

import hashlib
from dataclasses import replace
from ipaddress import IPv6Address
from typing import Any

from trainer.contract.plan import ClusterPlan


def mesh_address(cluster: str, host: str) -> str:
    """Return a host's address in the mesh of a cluster.

    A unique local one (RFC 4193): 40 bits of the cluster's name, 64 of the host's. So a host keeps it,
    whoever comes and goes.
    """
    of_cluster, of_host = (hashlib.sha256(name.lower().encode()).digest() for name in (cluster, host))
    return str(IPv6Address(b"\xfd" + of_cluster[:5] + b"\0\0" + of_host[:8]))


def meshed(plan: ClusterPlan, port: int) -> tuple[ClusterPlan, dict[str, Any]]:
    """Return a plan whose tasks reach each other through the mesh alone, and the fact `cluster_mesh`."""
    addresses = {task.host: mesh_address(plan.cluster_name, task.host) for task in plan.tasks}
    hosts = {task.host: {"address": addresses[task.host], "endpoint": task.address} for task in plan.tasks}
    tasks = tuple(replace(task, address=f"[{addresses[task.host]}]") for task in plan.tasks)
    return replace(plan, tasks=tasks), {"port": port, "hosts": hosts}
