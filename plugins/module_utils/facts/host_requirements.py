"""Checks whether a host can become part of the cluster, before anything is changed on it.

It changes nothing, and fails with all problems at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ..accounts import accounts_finding, read_accounts
from ..checks.clock_checks import clock_finding
from ..checks.host_checks import (
    PLATFORMS,
    HostNeeds,
    data_finding,
    host_checks,
    host_environment,
    program_environment,
)
from ..host.check import Check, checks_of, reasons_of
from ..systems import Systems
from .host_facts import read_host_facts


def refusal(host: str, system: str, checks: list[Check], systems: Systems) -> str:
    """Return the message for people why a host cannot be part of the cluster; "" if no check failed.

    `system` is the name of the host's distribution.
    """
    reasons = reasons_of(checks)
    return reasons and (
        f"{host} runs {system} and cannot be part of the cluster:\n{reasons}\n"
        "Nothing was changed there. Mend the host or take it out of the inventory. Supported are "
        f"{systems.supported} on x86_64, without GPUs also on aarch64 ({PLATFORMS})."
    )


def look_at_requirements(values: Mapping[str, Any], warn: Callable[[str], None]) -> dict[str, Any]:
    """Return what a supported host gets, for the part `requirements` of `host_facts`.

    Args:
        values: the arguments of this part, and `systems`, the described systems.
        warn: is called with a text for each check that is a warning.

    Returns: `environment` (the name of the host's environment), `python` (the path of the Python from which
        the environment is made), `programs` ({key of a program's requirements: name of the program's
        environment}) and `system` (what `System.for_roles` returns).

    Raises ValueError with all problems of an unsuitable host.

    """
    host = values["host"]
    names = ("python_version", "gpus", "cuda_source", "tasks", "fence", "mesh", "programs")
    required = HostNeeds(**{name: values[name] for name in names})
    facts = read_host_facts()
    accounts = values["accounts"]
    systems: Systems = values["systems"]
    checks = host_checks(facts, required, systems)
    clock = clock_finding(time.time() - values["now"], 60.0)  # the time that the module may take to get here
    findings = {"accounts": accounts_finding(accounts, read_accounts(accounts)), "clock": clock}
    checks += checks_of({**findings, "data": data_finding(values["data_directories"])})
    if reason := refusal(host, facts.distribution.name, checks, systems):
        raise ValueError(reason)
    for check in checks:
        if check.state == "warning":
            warn(f"{host}: {check.found}; {check.remedy}")
    environment, python = host_environment(facts, required)
    system = systems.of(facts.distribution)
    for_roles = system.for_roles if system else {}  # without one it was refused
    programs = {each["key"]: program_environment(facts, required, each).name for each in required.programs}
    return {
        "environment": environment.name,
        "python": python.path,
        "programs": programs,
        "system": for_roles,
    }
