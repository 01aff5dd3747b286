"""Describes a host's NVIDIA hardware and driver, and whether its tasks can compute on their GPUs.

It runs nvidia-smi, which loads the driver and creates its device nodes; nothing else is changed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict

from ..host.check import Check, reasons_of
from ..host.driver_packages import plan_installation
from ..host.gpu_checks import gpu_chain
from ..host.host_facts import read_distribution
from ..host.nvidia import GpuFacts, read_gpu_facts
from ..host.systems import system_of
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
    "packages": {
        "type": "list",
        "elements": "str",
        "default": [],
        "description": "Named ones, in place of the system's own.",
    },
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


def run(step: Step) -> None:
    """Take the step."""
    host, driver = step.params["host"], step.params["driver"]
    tasks = [task for task in step.params["tasks"] if task["gpus"]]
    if not tasks:
        step.exit_json(changed=False, gpu_facts={}, checks=[], installation={}, broken=[])
    facts, found = read_gpu_facts(), read_distribution()
    system = system_of(found)
    checks = gpu_chain(facts, tasks, os.uname().machine, system)
    failed = [check for check in checks if check.state == "failed"]
    broken = [check.name for check in failed if check.name in OF_THE_DRIVER]
    installation = {}
    if driver == "present" and broken:
        if system is None:
            step.fail_json(msg=f"{host}: psfleet does not know {found.name}. {UNTOUCHED}")
        try:
            planned = plan_installation(facts, found, system, step.params["packages"])
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
