"""Checks whether one host can become part of the cluster, before anything is changed on it.

It changes nothing, and fails with all problems at once.
"""

from __future__ import annotations

import time

from ..host.accounts import account_finding, read_accounts
from ..host.check import Check, checks_of, reasons_of
from ..host.clock_checks import clock_check
from ..host.host_checks import PLATFORMS, HostNeeds, data_check, host_chain, host_environment
from ..host.host_facts import read_host_facts
from ..host.systems import SUPPORTED, system_of
from ..step import Step

OPTIONS = {
    "host": {"required": True, "description": "The host's name, for messages."},
    "python_version": {"default": "", "description": "A version; empty for any that fits."},
    "gpus": {"type": "bool", "default": False, "description": "Whether a task of this host has GPUs."},
    "cuda_source": {
        "choices": ["wheels", "system"],
        "default": "wheels",
        "description": "Where the CUDA libraries of a host with GPUs come from.",
    },
    "tasks": {"type": "int", "default": 1, "description": "How many tasks this host has."},
    "accounts": {
        "type": "dict",
        "default": {},
        "description": "The accounts that a deployment makes, each with the variable that names it.",
    },
    "fence": {"type": "bool", "default": True, "description": "Whether its ports should be fenced."},
    "mesh": {"type": "bool", "default": False, "description": "Whether it should have WireGuard."},
    "data_directories": {
        "type": "list",
        "elements": "str",
        "default": [],
        "description": "Data that deploy.yml does not carry.",
    },
    "now": {"type": "float", "required": True, "description": "The controller's clock, in Unix seconds."},
}

RETURN = r"""
environment:
  returned: success
  type: str
  description: Name of the locked environment that the host gets, such as `gpu-python3.11-x86_64`.
python: {returned: success, type: str, description: "The system's Python that it is made from, a whole path."}
system:
  returned: success
  type: dict
  description: What roles take of its operating system, as `for_roles` of trainer/host/systems.
"""


def refusal(host: str, system: str, checks: list[Check]) -> str:
    """Return why a host cannot be part of the cluster, in one message; "" if it can."""
    reasons = reasons_of(checks)
    return reasons and (
        f"{host} runs {system} and cannot be part of the cluster:\n{reasons}\n"
        "Nothing was changed there. Mend the host or take it out of the inventory. Supported are "
        f"{SUPPORTED} on x86_64, without GPUs also on aarch64 ({PLATFORMS})."
    )


def run(step: Step) -> None:
    """Take the step."""
    host = step.params["host"]
    of_inventory = ("python_version", "gpus", "cuda_source", "tasks", "fence", "mesh")
    required = HostNeeds(**{name: step.params[name] for name in of_inventory})
    facts = read_host_facts()
    accounts = step.params["accounts"]
    checks = host_chain(facts, required)
    clock = clock_check(time.time() - step.params["now"], 60.0)  # the time that the step may take to get here
    found = {"accounts": account_finding(accounts, read_accounts(accounts)), "clock": clock}
    checks += checks_of({**found, "data": data_check(step.params["data_directories"])})
    if reason := refusal(host, facts.distribution.name, checks):
        step.fail_json(msg=reason)
    for check in checks:
        if check.state == "warning":
            step.warn(f"{host}: {check.found}; {check.remedy}")
    environment, python = host_environment(facts, required)
    system = system_of(facts.distribution)
    for_roles = system.for_roles if system else {}  # without one it was refused
    step.exit_json(changed=False, environment=environment.name, python=python.path, system=for_roles)
