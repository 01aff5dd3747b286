"""Describes a host's NVIDIA hardware and driver, and whether its tasks can compute on their GPUs.

It runs nvidia-smi, which loads the driver and creates its device nodes; nothing else is changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..checks.gpu_checks import gpu_checks
from ..host.check import Check, reasons_of
from .driver_packages import plan_installation
from .host_facts import read_distribution
from .nvidia import GpuFacts, read_gpu_facts

# The checks that an installed and loaded driver fixes.
DRIVER_CHECKS = ("driver", "nvidia-smi", "uvm")
UNTOUCHED = "Nothing was changed there."


def refusal(host: str, facts: GpuFacts, checks: Sequence[Check], installed: Sequence[str]) -> str:
    """Return the message for people why a host's tasks cannot compute on their GPUs; "" if they can.

    They cannot if one of the `checks` of the GPUs failed, or if the driver's packages in `installed` brought
    no kernel module. `installed` are the packages that were just installed, () if none were.
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


def look_at_gpus(values: Mapping[str, Any], warn: Callable[[str], None]) -> dict[str, Any]:
    """Return what is known of a host's GPUs, for the part `gpus` of `host_facts`.

    Args:
        values: the arguments of this part, and `systems`, the described systems.
        warn: is called with a text for each check that is a warning.

    Returns:
        `gpu_facts` (the fields of GpuFacts), `checks` (all checks of the GPUs), `broken` (the names of the
        failed checks that a working driver fixes) and `installation` (the fields of DriverPackages if the
        driver is to be installed, else {}). All are empty if no task has GPUs.

    Raises ValueError with a message for people if a check failed. With the driver `present`, a check in
    `broken` is no error if the driver can be installed; with `look`, no check is an error.

    """
    host, driver = values["host"], values["driver"]
    tasks = [task for task in values["tasks"] if task["gpus"]]
    if not tasks:
        return {"gpu_facts": {}, "checks": [], "installation": {}, "broken": []}
    facts, distribution = read_gpu_facts(), read_distribution()
    system = values["systems"].of(distribution)
    checks = gpu_checks(facts, tasks, os.uname().machine, system)
    failed = [check for check in checks if check.state == "failed"]
    broken = [check.name for check in failed if check.name in DRIVER_CHECKS]
    installation = {}
    if driver == "present" and broken:
        if system is None:
            raise ValueError(f"{host}: psfleet does not know {distribution.name}. {UNTOUCHED}")
        try:
            planned = plan_installation(facts, distribution, system, values["packages"])
        except OSError as error:
            raise ValueError(f"{host}: its packages cannot be looked at: {error}. {UNTOUCHED}") from error
        if planned.refusal:
            raise ValueError(
                f"{host}: {failed[0].found}, and nvidia_cuda_driver is present. The driver cannot be "
                f"installed: {planned.refusal}. {UNTOUCHED}"
            )
        installation = asdict(planned)
    elif driver != "look" and failed:
        installed = values["packages"] if driver == "installed" else ()
        raise ValueError(refusal(host, facts, checks, installed))
    for check in checks:
        if check.state == "warning":
            warn(f"{host}: {check.found}. {check.remedy}")
    return {
        "gpu_facts": asdict(facts),
        "checks": [check.to_json() for check in checks],
        "installation": installation,
        "broken": broken,
    }
