"""Describes a host's NVIDIA hardware and driver, and whether its tasks can compute on their GPUs.

It runs nvidia-smi, which loads the driver and creates its device nodes; nothing else is changed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ..host.check import Check, reasons_of
from ..host.driver_packages import (
    HEADERS,
    DriverPackages,
    choose_packages,
    describe_installation,
    without_candidate,
)
from ..host.gpu_checks import gpu_chain
from ..host.host_facts import parse_os_release
from ..host.nvidia import GpuFacts, read_gpu_facts
from ..step import Step

OPTIONS = {
    "host": {"required": True, "description": "The host's name, for messages."},
    "tasks": {"type": "list", "elements": "dict", "required": True, "description": "Those of the plan."},
    "driver": {
        "choices": ["check", "present", "installed", "look"],
        "default": "check",
        "description": [
            "`check` fails with all that keeps the tasks from their GPUs.",
            "`present` assumes that packages can fix the driver. It fails with what they cannot fix, and "
            "if they cannot be installed; otherwise it returns the packages that are needed.",
            "`installed` is `check` after `packages` were installed, `look` never fails.",
        ],
    },
    "system_packages": {"type": "dict", "default": {}, "description": "By distribution (`debian-12`)."},
    "packages": {"type": "list", "elements": "str", "default": [], "description": "Packages to use instead."},
}

RETURN = r"""
gpu_facts: {returned: always, type: dict, description: GpuFacts of trainer/host/nvidia.py or none.}
checks: {returned: always, type: list, description: "Each with `name`, `state`, `found` and `remedy`."}
installation:
  returned: always
  type: dict
  description: The `packages` that `present` takes, what that means in `says`. Empty where it works.
broken: {returned: always, type: list, description: Names of failed checks that a loaded driver mends.}
"""

# The checks that an installed and loaded driver fixes.
OF_THE_DRIVER = ("driver", "nvidia-smi", "uvm")
UNTOUCHED = "Nothing was changed there."


def refusal(host: str, facts: GpuFacts, checks: Sequence[Check], installed: Sequence[str]) -> str:
    """Return why a host's tasks cannot compute on their GPUs, in one message; "" if they can.

    `installed` are the driver's packages that were just installed, () if none were.
    """
    if installed and not (facts.driver or facts.module_kernels):
        return (
            f"{host}: {', '.join(installed)} are installed, and no kernel has a module of NVIDIA's driver: "
            "`dkms status` says whether one was compiled; or name other packages in "
            f"nvidia_cuda_driver_packages (host_vars/{host}.yml, or its group's)"
        )
    reasons = reasons_of(checks)
    if reasons and installed:
        packages = ", ".join(installed)
        return f"{host}: {packages} are installed, and its tasks cannot have their GPUs yet:\n{reasons}"
    if reasons:
        return f"{host} cannot give its tasks the GPUs that the inventory says:\n{reasons}\n{UNTOUCHED}"
    return ""


def plan_installation(
    facts: GpuFacts, by_system: Mapping[str, Sequence[str]], chosen: Sequence[str]
) -> DriverPackages:
    """Return what installing the driver on this host would involve."""
    release = parse_os_release(Path("/etc/os-release").read_text(encoding="utf-8"))
    system = f"{release.identity}-{release.version}"
    packages = choose_packages(system, facts.kernel, by_system, chosen)
    headers = (f"{HEADERS}{facts.kernel}",)
    if packages and not chosen and not without_candidate(policy_of(headers), headers):
        packages += headers
    unknown = without_candidate(policy_of(packages), packages) if packages else ()
    return describe_installation(facts, system, packages, unknown, chosen=bool(chosen))


def policy_of(packages: Sequence[str]) -> str:
    """Return apt's information about packages. Raises OSError if the host has no apt."""
    environment = {**os.environ, "LC_ALL": "C"}
    command = ["apt-cache", "policy", *packages]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stdout


def run(step: Step) -> None:
    """Take the step."""
    host, driver = step.params["host"], step.params["driver"]
    tasks = [task for task in step.params["tasks"] if task["gpus"]]
    if not tasks:
        step.exit_json(changed=False, gpu_facts={}, checks=[], installation={}, broken=[])
    facts = read_gpu_facts()
    checks = gpu_chain(facts, tasks, os.uname().machine)
    failed = [check for check in checks if check.state == "failed"]
    broken = [check.name for check in failed if check.name in OF_THE_DRIVER]
    installation = {}
    if driver == "present" and broken:
        try:
            planned = plan_installation(facts, step.params["system_packages"], step.params["packages"])
        except OSError as error:
            step.fail_json(msg=f"{host}: its packages cannot be looked at: {error}. {UNTOUCHED}")
        if planned.refusal:
            step.fail_json(
                msg=f"{host}: {failed[0].found}, and nvidia_cuda_driver is present. The driver cannot be "
                f"installed: {planned.refusal}. {UNTOUCHED}"
            )
        installation = asdict(planned)
    elif driver != "look" and failed:
        installed = step.params["packages"] if driver == "installed" else ()
        step.fail_json(msg=refusal(host, facts, checks, installed))
    for check in checks:
        if check.state == "warning":
            step.warn(f"{host}: {check.found}. {check.remedy}")
    step.exit_json(
        changed=False,
        gpu_facts=asdict(facts),
        checks=[check.to_json() for check in checks],
        installation=installation,
        broken=broken,
    )
