"""A host as a deployment knows it: the plan, the variables, and what was answered so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]

# The arguments of a step, in the form of its OPTIONS.
Arguments = dict[str, Any]


@dataclass(frozen=True)
class Cluster:
    """The facts of the cluster, as docs/contracts.md describes those with the prefix `cluster_`."""

    plan: Mapping[str, Any]
    tasks: Mapping[str, Sequence[Mapping[str, Any]]]
    paths: Mapping[str, str]
    programs: Sequence[Mapping[str, Any]]
    data: Mapping[str, Any]
    mesh: Mapping[str, Any]
    release: str
    person: str


@dataclass(frozen=True)
class Host:
    """One host of the cluster.

    `values` maps each variable of a role to the host's value. `facts` are its answers to earlier steps, by
    the name of the fact. The other fields are results of the controller: the `environments` of
    `wheel_store`, and those of `exchange_keys`: what was `signed`, and the `mesh_hosts`; {} before they
    exist. `now` is the controller's clock in seconds since the epoch.
    """

    name: str
    cluster: Cluster
    values: Mapping[str, Any]
    facts: Mapping[str, Any]
    environments: Mapping[str, Any] = field(default_factory=dict)
    signed: Mapping[str, Any] = field(default_factory=dict)
    mesh_hosts: Mapping[str, Any] = field(default_factory=dict)
    now: float = 0.0

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """The tasks of the plan on this host."""
        return [dict(task) for task in self.cluster.tasks.get(self.name, ())]

    @property
    def requirements(self) -> Mapping[str, Any]:
        """The host's answer to `host_requirements`."""
        answer: Mapping[str, Any] = self.facts["psfleet_requirements"]
        return answer

    @property
    def environment(self) -> Mapping[str, Any]:
        """The wheels of the host's Python environment, as `wheel_store` describes them."""
        described: Mapping[str, Any] = self.environments[self.requirements["environment"]]
        return described
