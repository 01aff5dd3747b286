"""Look at everything on one host that its tasks need, in one round trip. Nothing is changed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.check import Check
from ansible.module_utils.deployment import (
    NOT_DEPLOYED,
    Deployment,
    Today,
    deployment_check,
    is_installed,
    read_deployment,
)
from ansible.module_utils.disk_check import disk_check
from ansible.module_utils.doctor_units import ask_tensorflow, skipped
from ansible.module_utils.gpu_checks import gpu_chain
from ansible.module_utils.host_checks import Asked, host_chain, host_environment
from ansible.module_utils.host_facts import HostFacts, read_host_facts
from ansible.module_utils.name_checks import name_check, names_in, resolve_names
from ansible.module_utils.nvidia import read_gpu_facts
from ansible.module_utils.port_checks import TaskPort, port_check, read_port_facts, task_ports
from ansible.module_utils.task_units import parse_show

DOCUMENTATION = r"""
module: host_doctor
short_description: Look at everything on this host that its tasks need
description:
  - Changes nothing, and does not fail for what it finds.
  - Where something is deployed, TensorFlow is tried in the sandbox of the tasks, by the unit
    C(psfleet-doctor@). Not in check mode.
options:
  host:
    description: The host's name in the plan.
    type: str
    required: true
  tasks:
    description: The plan's tasks of this host, each with C(job), C(index), C(port) and C(gpus).
    type: list
    elements: dict
    required: true
  addresses:
    description: The plan's address of each host of the cluster.
    type: dict
    required: true
  plan:
    description: Hash of today's plan.
    type: str
    required: true
  release:
    description: Hash of the trainer that the controller would deploy today.
    type: str
    required: true
  environments:
    description:
      - By the name of each environment that a host may get, its C(lock_hash), and the disk that its
        installation needs, C(archive_bytes) and C(environment_bytes).
    type: dict
    required: true
  python_version:
    description: Version of Python that the inventory asks for. Empty for the host's own.
    type: str
    default: ""
  cuda_source:
    description: Where the CUDA libraries of a host with GPUs come from.
    type: str
    choices: [wheels, system]
    default: wheels
  install_directory:
    description: Where the environments and releases are.
    type: path
    required: true
  configuration_directory:
    description: Where deploy.yml left the plan.
    type: path
    required: true
  state_directory:
    description: Where the tasks keep their runs.
    type: path
    required: true
  log_directory:
    description: Where the tasks' output is.
    type: path
    required: true
author: psfleet
"""

EXAMPLES = r"""
- name: Look at the host
  host_doctor:
    host: node1
    tasks: [{job: ps, index: 0, port: 2222, gpus: []}]
    addresses: {node1: 10.89.0.11}
    plan: 0a1b2c3d4e5f
    release: 9d2f6a0c1b7e
    environments:
      cpu-python3.11-x86_64:
        lock_hash: 58add9378a89
        archive_bytes: 372920320
        environment_bytes: 1653193401
    install_directory: /opt/psfleet
    configuration_directory: /etc/psfleet
    state_directory: /var/lib/psfleet
    log_directory: /var/log/psfleet
"""

RETURN = r"""
checks:
  description:
    - What was looked at, each with C(task) (such as C(worker0), empty for the host), C(name), C(state),
      C(found) and C(remedy).
  returned: always
  type: list
deployed:
  description: Version of TensorFlow that is in use, empty where nothing is deployed.
  returned: always
  type: str
alive:
  description: Names of the tasks of this host that run.
  returned: always
  type: list
began:
  description: This host's clock when it began to look, in Unix seconds; C(ended) when it had looked.
  returned: always
  type: float
"""


def tried_tasks(tasks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the tasks ("worker-0") in whose place TensorFlow is tried: each that has GPUs, else one."""
    with_gpus = [task for task in tasks if task["gpus"]]
    return [f"{task['job']}-{task['index']}" for task in with_gpus or tasks[:1]]


def deployed_tasks(
    tasks: Sequence[Mapping[str, Any]], configuration_directory: Path
) -> list[Mapping[str, Any]]:
    """Return the tasks that deploy.yml has left on this host; others are in the inventory since."""
    folder = configuration_directory / "tasks"
    return [task for task in tasks if (folder / f"{task['job']}-{task['index']}.env").is_file()]


def running_units(ports: Sequence[TaskPort]) -> dict[str, int]:
    """Return the user (uid) of each unit of these tasks that runs now."""
    units = [unit for port in ports for unit in port.units]
    command = ["systemctl", "show", "--property=Id,MainPID", *units]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # the check `system` says that it is missing
        return {}
    running = {}
    for values in parse_show(done.stdout):
        with suppress(OSError, ValueError):  # it has ended meanwhile
            if pid := int(values["MainPID"]):
                running[values["Id"]] = Path(f"/proc/{pid}").stat().st_uid
    return running


def described(checks: Sequence[Check], task: str = "") -> list[dict[str, str]]:
    """Return checks as the answer holds them."""
    return [{"task": task, **check.to_json()} for check in checks]


def own_checks(
    values: Mapping[str, Any], deployment: Deployment, facts: HostFacts, running: Mapping[str, int]
) -> list[Check]:
    """Return the checks of the host's disk, names and ports, and of what is deployed there."""
    install = Path(values["install_directory"])
    today = today_of(values, facts)
    installed = is_installed(install, today["lock_hash"])
    addresses = {str(host): str(address) for host, address in values["addresses"].items()}
    ports = task_ports(values["tasks"])
    return [
        disk_check(
            install,
            [Path(values["state_directory"]), Path(values["log_directory"])],
            archive_bytes=0 if installed else today["archive_bytes"],
            environment_bytes=0 if installed else today["environment_bytes"],
        ),
        name_check(values["host"], addresses, resolve_names(names_in(addresses))),
        port_check(ports, read_port_facts([task.port for task in ports]), running),
        deployment_check(
            deployment, Today(values["plan"], values["release"], today["lock_hash"]), installed=installed
        ),
    ]


def asked_of(values: Mapping[str, Any]) -> Asked:
    """Return what the inventory asks of the host."""
    return Asked(
        python_version=values["python_version"],
        gpus=any(task["gpus"] for task in values["tasks"]),
        cuda_source=values["cuda_source"],
        tasks=len(values["tasks"]),
    )


def today_of(values: Mapping[str, Any], facts: HostFacts) -> Mapping[str, Any]:
    """Return the environment that a deployment would install; none where the host is not supported."""
    try:
        environment, _ = host_environment(facts, asked_of(values))
    except ValueError:
        return {"lock_hash": "", "archive_bytes": 0, "environment_bytes": 0}
    return dict(values["environments"][environment.name])


def tensorflow_checks(
    values: Mapping[str, Any], deployment: Deployment, *, check_mode: bool
) -> list[dict[str, str]]:
    """Return what TensorFlow says in the sandbox of the host's tasks."""
    if not deployment.plan:
        return described(skipped(NOT_DEPLOYED))
    if not (deployment.tensorflow and deployment.release):
        return described(skipped("environment failed"))
    if check_mode:
        return described(skipped("check mode starts no unit"))
    tasks = deployed_tasks(values["tasks"], Path(values["configuration_directory"]))
    if not tasks:
        return described(skipped("none of its tasks is deployed"))
    answers = ask_tensorflow(tried_tasks(tasks), Path(values["log_directory"]))
    return [check for task, checks in answers.items() for check in described(checks, task.replace("-", ""))]


def main() -> None:
    """Run the module."""
    began = time.time()
    directories = ("install_directory", "configuration_directory", "state_directory", "log_directory")
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "tasks": {"type": "list", "elements": "dict", "required": True},
            "addresses": {"type": "dict", "required": True},
            "plan": {"type": "str", "required": True},
            "release": {"type": "str", "required": True},
            "environments": {"type": "dict", "required": True},
            "python_version": {"type": "str", "default": ""},
            "cuda_source": {"type": "str", "choices": ["wheels", "system"], "default": "wheels"},
            **{name: {"type": "path", "required": True} for name in directories},
        },
        supports_check_mode=True,
    )
    values = module.params
    facts = read_host_facts()
    deployment = read_deployment(Path(values["install_directory"]), Path(values["configuration_directory"]))
    checks = described(host_chain(facts, asked_of(values)))
    ports = task_ports(values["tasks"])
    running = running_units(ports)
    checks += described(own_checks(values, deployment, facts, running))
    if any(task["gpus"] for task in values["tasks"]):
        checks += described(gpu_chain(read_gpu_facts(), values["tasks"], facts.machine))
    checks += tensorflow_checks(values, deployment, check_mode=module.check_mode)
    module.exit_json(
        changed=False,
        checks=checks,
        deployed=deployment.tensorflow if deployment.plan else "",
        alive=[port.name for port in ports if running.keys() & set(port.units)],
        began=began,
        ended=time.time(),
    )


if __name__ == "__main__":
    main()
