"""Checks everything on one host that its tasks need, in one round trip, and changes nothing.

It does not fail for what it finds. If something is deployed, TensorFlow is tried in the sandbox of the tasks,
by the unit `psfleet-doctor@`, except in check mode.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_doctor
short_description: Checks everything on one host that its tasks need, in one round trip, and changes
  nothing
description:
  - It does not fail for what it finds.
  - If something is deployed, TensorFlow is tried in the sandbox of the tasks, by the unit V(psfleet-doctor@),
    except in check mode.
author: psfleet (@psfleet)
options:
  host:
    description: The host's name in the plan.
    type: str
    required: true
  tasks:
    description: Those of the plan.
    type: list
    elements: dict
    required: true
  addresses:
    description: Where each host is reached.
    type: dict
    required: true
  sshd_port:
    description: Where the other hosts reach its sshd.
    type: int
    required: true
  plan:
    description: Hash of today's plan.
    type: str
    required: true
  release:
    description: Hash of the trainer that would be deployed today.
    type: str
    required: true
  environments:
    description: Environments that the host may get, by name.
    type: dict
    required: true
  python_version:
    description: As of V(host_requirements).
    type: str
    default: ''
  cuda_source:
    description: As of V(host_requirements).
    type: str
    choices:
      - wheels
      - system
    default: wheels
  fence:
    description: Whether its ports should be fenced.
    type: bool
    default: true
  mesh:
    description: Whether it should have WireGuard.
    type: bool
    default: false
  tables:
    description: What its tasks will hold of a model; as of V(HostNeeds).
    type: dict
    default: {}
  data_directories:
    description: Data that deploy.yml does not carry.
    type: list
    elements: str
    default: []
  listener:
    description: The listener of V(host_peers), which is ended first.
    type: dict
    default: {}
  paths:
    description: The fact V(cluster_paths).
    type: dict
    required: true
attributes:
  check_mode:
    support: full
    description: It changes nothing, and says what it would change.
"""

EXAMPLES = r"""
- name: Check every host, and show the findings
  psfleet.cluster.show:
    page: doctor
    cache_directory: ~/.cache/psfleet
  run_once: true
"""

RETURN = r"""
checks:
  returned: always
  type: list
  description: Each with `name`, `state`, `found`, `remedy` and `task` (`worker0`, empty for the host).
  elements: dict
deployed:
  returned: always
  type: str
  description: Version of TensorFlow in use, empty for none.
alive:
  returned: always
  type: list
  description: Names of the tasks of this host that run.
  elements: str
listened:
  returned: always
  type: bool
  description: Whether the listener existed until now.
began:
  returned: always
  type: float
  description: This host's clock before the checks, in Unix seconds.
ended:
  returned: always
  type: float
  description: That clock after the checks.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.checks.disk_check import disk_check
from ..module_utils.checks.doctor_units import ask_tensorflow, skipped
from ..module_utils.checks.gpu_checks import gpu_chain
from ..module_utils.checks.host_checks import HostNeeds, data_check, host_chain, host_environment
from ..module_utils.checks.name_checks import name_check, names_in, resolve_names
from ..module_utils.checks.port_checks import port_check, read_port_facts, running_units, task_ports
from ..module_utils.checks.ssh_checks import ssh_check
from ..module_utils.deployment import (
    NOT_DEPLOYED,
    Deployment,
    Today,
    deployment_check,
    is_installed,
    read_deployment,
)
from ..module_utils.facts.host_facts import HostFacts, read_host_facts
from ..module_utils.facts.nvidia import read_gpu_facts
from ..module_utils.host.check import Check, checks_of
from ..module_utils.module import made
from ..module_utils.network.fence_state import fence_check
from ..module_utils.network.peer_probes import end_listener
from ..module_utils.systems import system_of

ARGUMENTS: dict[str, Any] = {
    "host": {"required": True},
    "tasks": {"type": "list", "elements": "dict", "required": True},
    "addresses": {"type": "dict", "required": True},
    "sshd_port": {"type": "int", "required": True},
    "plan": {"required": True},
    "release": {"required": True},
    "environments": {"type": "dict", "required": True},
    "python_version": {"default": ""},
    "cuda_source": {"choices": ["wheels", "system"], "default": "wheels"},
    "fence": {"type": "bool", "default": True},
    "mesh": {"type": "bool", "default": False},
    "tables": {"type": "dict", "default": {}},
    "data_directories": {"type": "list", "elements": "str", "default": []},
    "listener": {"type": "dict", "default": {}},
    "paths": {"type": "dict", "required": True},
}


def tried_tasks(tasks: Sequence[Mapping[str, Any]], configuration: Path) -> list[str]:
    """Return the tasks ("worker-0") in whose place TensorFlow is tried: all with GPUs, or else one.

    Only tasks that deploy.yml has deployed on this host count, not those added to the inventory since.
    """
    names = {f"{task['job']}-{task['index']}": bool(task["gpus"]) for task in tasks}
    deployed = [name for name in names if (configuration / "tasks" / f"{name}.env").is_file()]
    return [name for name in deployed if names[name]] or deployed[:1]


def own_checks(
    values: Mapping[str, Any],
    today: Mapping[str, Any],
    paths: Mapping[str, Path],
    deployment: Deployment,
    running: Mapping[str, int],
) -> list[Check]:
    """Return the checks of the host's disk, names, sshd, ports and fence, and of what is deployed there.

    `today` is the environment that a deployment would install; `running` is as of `running_units`.
    """
    installed = is_installed(paths["install_directory"], today["lock_hash"])
    archive_bytes, environment_bytes = (
        0 if installed else today[name] for name in ("archive_bytes", "environment_bytes")
    )
    runs = [paths["state_directory"], paths["log_directory"]]
    ports, addresses = task_ports(values["tasks"]), values["addresses"]
    plan = Today(values["plan"], values["release"], today["lock_hash"])
    findings = {
        "disk": disk_check(paths["install_directory"], runs, archive_bytes, environment_bytes),
        "data": data_check(values["data_directories"]),
        "names": name_check(values["host"], addresses, resolve_names(names_in(addresses))),
        "ssh": ssh_check(values["host"], addresses[values["host"]], values["sshd_port"]),
        "ports": port_check(ports, read_port_facts([task.port for task in ports]), running),
        "environment": deployment_check(deployment, plan, installed=installed),
        "fence": fence_check(
            paths["configuration_directory"], wanted=values["fence"], deployed=bool(deployment.plan)
        ),
    }
    return list(checks_of(findings))


def environment_today(values: Mapping[str, Any], required: HostNeeds, facts: HostFacts) -> Mapping[str, Any]:
    """Return the environment that a deployment would install, without a hash if the host is unsupported."""
    try:
        environment, _ = host_environment(facts, required)
    except ValueError:
        return {"lock_hash": "", "archive_bytes": 0, "environment_bytes": 0}
    return dict(values["environments"][environment.name])


def tensorflow_checks(
    values: Mapping[str, Any], paths: Mapping[str, Path], deployment: Deployment, *, check_mode: bool
) -> list[Check]:
    """Return the checks of TensorFlow in the sandbox of the host's tasks."""
    if not deployment.plan:
        return skipped(NOT_DEPLOYED)
    if not (deployment.tensorflow and deployment.release):
        return skipped("environment failed")
    if check_mode:
        return skipped("check mode starts no unit")
    tasks = tried_tasks(values["tasks"], paths["configuration_directory"])
    if not tasks:
        return skipped("none of its tasks is deployed")
    return ask_tensorflow(tasks, paths["log_directory"])


def run(module: AnsibleModule) -> None:
    """Do it, and answer."""
    began = time.time()
    values = module.params
    listened = bool(values["listener"]) and end_listener(**values["listener"])
    tasks, paths = values["tasks"], {name: Path(path) for name, path in values["paths"].items()}
    gpus = any(task["gpus"] for task in tasks)
    of_inventory = ("python_version", "cuda_source", "fence", "mesh", "tables")
    required = HostNeeds(gpus=gpus, tasks=len(tasks), **{name: values[name] for name in of_inventory})
    facts = read_host_facts()
    deployment = read_deployment(paths["install_directory"], paths["configuration_directory"])
    ports = task_ports(tasks)
    running = running_units(ports)
    checks = host_chain(facts, required)
    checks += own_checks(values, environment_today(values, required, facts), paths, deployment, running)
    checks += gpu_chain(read_gpu_facts(), tasks, facts.machine, system_of(facts.distribution)) if gpus else []
    checks += tensorflow_checks(values, paths, deployment, check_mode=module.check_mode)
    module.exit_json(
        changed=False,
        checks=[check.to_json() for check in checks],
        deployed=deployment.tensorflow if deployment.plan else "",
        alive=[port.name for port in ports if running.keys() & set(port.units)],
        listened=listened,
        began=began,
        ended=time.time(),
    )


def main() -> None:
    """Run the module."""
    run(made(ARGUMENTS))


if __name__ == "__main__":
    main()
