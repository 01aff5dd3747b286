"""Say what one host has of NVIDIA's, and whether its tasks can compute on the GPUs that they were given."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host.check import Check, reasons_of
from ..module_utils.host.driver_packages import (
    DriverPackages,
    choose_packages,
    describe_installation,
    running_headers,
    without_candidate,
)
from ..module_utils.host.gpu_checks import gpu_chain
from ..module_utils.host.host_facts import parse_os_release
from ..module_utils.host.nvidia import GpuFacts, read_gpu_facts

DOCUMENTATION = r"""
module: gpu_facts
short_description: Say what this host has of NVIDIA's, and whether its tasks can compute on their GPUs
description:
  - Asks nvidia-smi, which loads a driver that is installed, and makes its device nodes. Changes nothing else.
options:
  host:
    description: The host's name, for messages.
    type: str
    required: true
  tasks:
    description: The host's tasks in the plan. Without any that has GPUs, the host is not looked at.
    type: list
    elements: dict
    required: true
  driver:
    description:
      - C(check) fails with all that keeps the tasks from their GPUs.
      - C(present) takes it that packages can mend a driver. It fails with what they cannot, and where they
        cannot be installed; else it says which packages it takes.
      - C(installed) is C(check) after the packages were installed, C(look) never fails.
    type: str
    choices: [check, present, installed, look]
    default: check
  system_packages:
    description:
      - The driver's packages by distribution, such as C(debian-12). C({flavour}) in them is the kernel's.
    type: dict
    default: {}
  packages:
    description:
      - Packages of the driver in place of the distribution's; with C(installed) those that were installed.
    type: list
    elements: str
    default: []
author: psfleet
"""

EXAMPLES = r"""
- name: Check the GPUs of the host
  psfleet.cluster.gpu_facts:
    host: node1
    tasks: [{job: worker, index: 0, host: node1, gpus: [0]}]
"""

RETURN = r"""
gpu_facts:
  description: What was found, as GpuFacts of trainer/host/nvidia.py; empty where no task has GPUs.
  returned: always
  type: dict
checks:
  description: What was looked at, each with C(name), C(state), C(found) and C(remedy).
  returned: always
  type: list
  elements: dict
installation:
  description:
    - With O(driver=present), where the driver is to be installed, its C(packages) and in C(says) what that
      means. Empty where it works.
  returned: always
  type: dict
broken:
  description: Names of the checks that failed and that a driver mends, once it is installed and loaded.
  returned: always
  type: list
  elements: str
"""

# What a driver that is installed and loaded puts right.
OF_THE_DRIVER = ("driver", "nvidia-smi", "uvm")
UNTOUCHED = "Nothing was changed there."


def refusal(host: str, facts: GpuFacts, checks: Sequence[Check], installed: Sequence[str]) -> str:
    """Return why a host's tasks cannot compute on their GPUs, all in one message; empty where they can.

    `installed` are the packages of the driver that were installed before this, () where none were.
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
    """Return what installing the driver on this host would mean."""
    release = parse_os_release(Path("/etc/os-release").read_text(encoding="utf-8"))
    system = f"{release.identity}-{release.version}"
    packages = choose_packages(system, facts.kernel, by_system, chosen)
    headers = (running_headers(facts.kernel),)
    if packages and not chosen and not without_candidate(policy_of(headers), headers):
        packages += headers
    unknown = without_candidate(policy_of(packages), packages) if packages else ()
    return describe_installation(facts, system, packages, unknown, chosen=bool(chosen))


def policy_of(packages: Sequence[str]) -> str:
    """Return what apt knows of some packages. Raises OSError where the host has no apt."""
    environment = {**os.environ, "LC_ALL": "C"}
    command = ["apt-cache", "policy", *packages]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stdout


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "tasks": {"type": "list", "elements": "dict", "required": True},
            "driver": {
                "type": "str",
                "choices": ["check", "present", "installed", "look"],
                "default": "check",
            },
            "system_packages": {"type": "dict", "default": {}},
            "packages": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    host, driver = module.params["host"], module.params["driver"]
    tasks = [task for task in module.params["tasks"] if task["gpus"]]
    if not tasks:
        module.exit_json(changed=False, gpu_facts={}, checks=[], installation={}, broken=[])
    facts = read_gpu_facts()
    checks = gpu_chain(facts, tasks, os.uname().machine)
    failed = [check for check in checks if check.state == "failed"]
    broken = [check.name for check in failed if check.name in OF_THE_DRIVER]
    installation = {}
    if driver == "present" and broken:
        try:
            planned = plan_installation(facts, module.params["system_packages"], module.params["packages"])
        except OSError as error:
            module.fail_json(msg=f"{host}: its packages cannot be looked at: {error}. {UNTOUCHED}")
        if planned.refusal:
            module.fail_json(
                msg=f"{host}: {failed[0].found}, and nvidia_cuda_driver is present. The driver cannot be "
                f"installed: {planned.refusal}. {UNTOUCHED}"
            )
        installation = asdict(planned)
    elif driver != "look" and failed:
        installed = module.params["packages"] if driver == "installed" else ()
        module.fail_json(msg=refusal(host, facts, checks, installed))
    for check in checks:
        if check.state == "warning":
            module.warn(f"{host}: {check.found}. {check.remedy}")
    module.exit_json(
        changed=False,
        gpu_facts=asdict(facts),
        checks=[check.to_json() for check in checks],
        installation=installation,
        broken=broken,
    )


if __name__ == "__main__":
    main()
