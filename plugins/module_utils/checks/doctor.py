"""All checks of doctor.yml on one host."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..deployment import (
    NOT_DEPLOYED,
    Deployment,
    TodaysHashes,
    environment_finding,
    is_installed,
    read_deployment,
)
from ..facts.host_facts import HostFacts, read_host_facts
from ..facts.nvidia import read_gpu_facts
from ..host.check import Check, checks_of
from ..network.fence_state import fence_finding
from ..network.peer_probes import end_listener
from ..systems import read_systems
from .disk_check import disk_finding
from .doctor_units import all_skipped, ask_tensorflow
from .gpu_checks import gpu_checks
from .host_checks import HostNeeds, data_finding, host_checks, host_environment
from .name_checks import names_finding, names_in, resolve_names
from .port_checks import ports_finding, read_port_facts, running_units, task_ports
from .ssh_checks import ssh_finding


def check_host(values: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """End the host's listener, check the host, and return the answer of the module `host_doctor`.

    `values` are the module's arguments. The answer has:

    - `checks`: all checks of the host, as JSON objects.
    - `deployed`: the version of TensorFlow that tasks use, "" if nothing is deployed.
    - `alive`: the names of the tasks that run, such as "worker0".
    - `listened`: whether the listener was still running; False if there was none.
    - `began`, `ended`: the host's clock before and after the checks, in Unix seconds.
    """
    began = time.time()
    listened = bool(values["listener"]) and end_listener(**values["listener"])
    tasks, paths = values["tasks"], {name: Path(path) for name, path in values["paths"].items()}
    gpus = any(task["gpus"] for task in tasks)
    names = ("python_version", "cuda_source", "fence", "mesh", "tables", "programs")
    required = HostNeeds(gpus=gpus, tasks=len(tasks), **{name: values[name] for name in names})
    facts, systems = read_host_facts(), read_systems(values["systems"])
    deployment = read_deployment(paths["install_directory"], paths["configuration_directory"])
    ports = task_ports(tasks)
    running = running_units(ports)
    checks = host_checks(facts, required, systems)
    today = environment_today(values, required, facts)
    checks += deployment_checks(values, today, paths, deployment, running)
    system = systems.of(facts.distribution)
    checks += gpu_checks(read_gpu_facts(), tasks, facts.machine, system) if gpus else []
    checks += tensorflow_checks(values, paths, deployment, check_mode=check_mode)
    return {
        "checks": [check.to_json() for check in checks],
        "deployed": deployment.tensorflow if deployment.plan else "",
        "alive": [port.name for port in ports if running.keys() & set(port.units)],
        "listened": listened,
        "began": began,
        "ended": time.time(),
    }


def tasks_to_try(tasks: Sequence[Mapping[str, Any]], configuration: Path) -> list[str]:
    """Return the tasks, such as "worker-0", for which TensorFlow is tried, in the order of `tasks`.

    These are all deployed tasks with GPUs; if none has GPUs, only the first deployed task; [] if none is
    deployed. A task is deployed if it has a file in the configuration directory, `configuration`.
    """
    names = {f"{task['job']}-{task['index']}": bool(task["gpus"]) for task in tasks}
    deployed = [name for name in names if (configuration / "tasks" / f"{name}.env").is_file()]
    return [name for name in deployed if names[name]] or deployed[:1]


def deployment_checks(
    values: Mapping[str, Any],
    today: Mapping[str, Any],
    paths: Mapping[str, Path],
    deployment: Deployment,
    running: Mapping[str, int],
) -> list[Check]:
    """Return the checks `disk`, `data`, `names`, `ssh`, `ports`, `environment` and `fence`, in this order.

    `values` are the module's arguments. `today` is the environment that a deployment would install, as
    `environment_today` returns it; `running` is what `running_units` returned.
    """
    installed = is_installed(paths["install_directory"], today["lock_hash"])
    archive_bytes, environment_bytes = (
        0 if installed else today[name] for name in ("archive_bytes", "environment_bytes")
    )
    runs = [paths["state_directory"], paths["log_directory"]]
    ports, addresses = task_ports(values["tasks"]), values["addresses"]
    plan = TodaysHashes(values["plan"], values["release"], today["lock_hash"])
    findings = {
        "disk": disk_finding(paths["install_directory"], runs, archive_bytes, environment_bytes),
        "data": data_finding(values["data_directories"]),
        "names": names_finding(values["host"], addresses, resolve_names(names_in(addresses))),
        "ssh": ssh_finding(values["host"], addresses[values["host"]], values["sshd_port"]),
        "ports": ports_finding(ports, read_port_facts([task.port for task in ports]), running),
        "environment": environment_finding(deployment, plan, installed=installed),
        "fence": fence_finding(
            paths["configuration_directory"], wanted=values["fence"], deployed=bool(deployment.plan)
        ),
    }
    return list(checks_of(findings))


def environment_today(values: Mapping[str, Any], required: HostNeeds, facts: HostFacts) -> Mapping[str, Any]:
    """Return the environment that a deployment would install on the host today.

    It has at least `lock_hash`, `archive_bytes` and `environment_bytes`, as `wheel_store` returned them in
    `values["environments"]`. If the host is not supported, the hash is "" and the sizes are 0.
    """
    try:
        environment, _ = host_environment(facts, required)
    except ValueError:
        return {"lock_hash": "", "archive_bytes": 0, "environment_bytes": 0}
    return dict(values["environments"][environment.name])


def tensorflow_checks(
    values: Mapping[str, Any], paths: Mapping[str, Path], deployment: Deployment, *, check_mode: bool
) -> list[Check]:
    """Try TensorFlow in the sandbox of the host's tasks; return the checks of `ask_tensorflow`.

    In check mode, and if nothing or only a part is deployed, nothing is tried, and all checks are skipped.
    """
    if not deployment.plan:
        return all_skipped(NOT_DEPLOYED)
    if not (deployment.tensorflow and deployment.release):
        return all_skipped("environment failed")
    if check_mode:
        return all_skipped("check mode starts no unit")
    tasks = tasks_to_try(values["tasks"], paths["configuration_directory"])
    if not tasks:
        return all_skipped("none of its tasks is deployed")
    return ask_tensorflow(tasks, paths["log_directory"])
