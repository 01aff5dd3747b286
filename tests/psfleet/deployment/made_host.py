"""A host of a cluster with plausible answers, for the functions that compute what it is told."""

from collections.abc import Mapping
from typing import Any

import yaml

from psfleet.deployment.host import PROJECT, Cluster, Host
from trainer.contract.plan import ClusterPlan, PlannedTask
from trainer.host.wording import grouped

ENVIRONMENT = "cpu-python3.11-x86_64"
WHEELS: dict[str, Any] = {"lock_hash": "1" * 12, "archive": "/cache/wheels.tar", "program": {}}
SIGNED = {
    "authorities": {"user": "ssh-ed25519 USERS", "host": "ssh-ed25519 HOSTS"},
    "certificates": {"here": {"host": "host certificate", "user": "user certificate"}},
    "revoked": "bm9uZQ==",
    "ports": {"here": 22, "there": 2022},
}


# Two tasks here, and one there.
PLAN = ClusterPlan(
    "lab",
    (
        PlannedTask("ps", 0, "here", "10.0.0.1", 2222),
        PlannedTask("worker", 0, "here", "10.0.0.1", 2223),
        PlannedTask("worker", 1, "there", "[fd00::2]", 2222, (3,)),
    ),
)


def made_host(
    plan: ClusterPlan = PLAN,
    *,
    install: str = "/opt/psfleet",
    wheels: Mapping[str, Any] = WHEELS,
    signed: Mapping[str, Any] = SIGNED,
    cluster: Mapping[str, Any] | None = None,
    **values: Any,  # noqa: ANN401 - of roles' variables
) -> Host:
    """Return the host `here` of a plan; `values` are variables other than the roles' defaults."""
    system = {"sshd_service": "ssh.service", "sshd_directory": "/etc/ssh/sshd_config.d"}
    requirements = {"environment": ENVIRONMENT, "python": "/usr/bin/python3.11", "system": system}
    of_cluster: dict[str, Any] = {
        "plan": {**plan.to_json(), "ps_hosts": plan.ps_hosts, "worker_hosts": plan.worker_hosts},
        "tasks": grouped((task.host, task.to_json()) for task in plan.tasks),
        "paths": {
            "configuration_directory": "/etc/psfleet",
            "install_directory": install,
            "state_directory": "/var/lib/psfleet",
            "log_directory": "/var/log/psfleet",
        },
        "programs": [],
        "data": {"source": "", "directories": {}, "tables": {}},
        "mesh": {},
        "release": "0" * 12,
        "person": "ana@desk",
    }
    return Host(
        name="here",
        cluster=Cluster(**{**of_cluster, **(cluster or {})}),
        values={**role_defaults(), "ssh_mesh_user": "login", "ssh_mesh_ca_directory": "/ca", **values},
        facts={"psfleet_requirements": requirements},
        environments={ENVIRONMENT: wheels},
        signed=signed,
        now=5.0,
    )


def role_defaults() -> dict[str, Any]:
    """Return the defaults of all roles, as they stand in their files."""
    files = sorted(PROJECT.glob("roles/*/defaults/main.yml"))
    return {name: value for file in files for name, value in yaml.safe_load(file.read_text()).items()}
