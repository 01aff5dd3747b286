"""Say whether one host can become part of the cluster, before anything is changed on it."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host.check import Check, reasons_of
from ..module_utils.host.host_checks import PLATFORMS, SUPPORTED, Asked, host_chain, host_environment
from ..module_utils.host.host_facts import read_host_facts

DOCUMENTATION = r"""
module: host_requirements
short_description: Say whether this host is supported, and which environment it gets
description:
  - Changes nothing. Fails with everything that is missing at once.
options:
  host:
    description: The host's name, for messages.
    type: str
    required: true
  python_version:
    description:
      - Version of Python that the environment is to be made from, such as C(3.11).
      - Empty for the host's own, or the newest one there that TensorFlow has a wheel for.
    type: str
    default: ""
  gpus:
    description: Whether a task of this host has GPUs.
    type: bool
    default: false
  cuda_source:
    description: Where the CUDA libraries of a host with GPUs come from.
    type: str
    choices: [wheels, system]
    default: wheels
  tasks:
    description: How many tasks this host has.
    type: int
    default: 1
author: psfleet
"""

EXAMPLES = r"""
- name: Check that the host is supported
  psfleet.cluster.host_requirements:
    host: node1
    gpus: true
    tasks: 3
"""

RETURN = r"""
environment:
  description: Name of the locked environment that the host gets, such as C(gpu-python3.11-x86_64).
  returned: success
  type: str
python_version:
  description: Version of the Python that the environment is made from.
  returned: success
  type: str
interpreter:
  description: Path of that Python.
  returned: success
  type: str
checks:
  description: What was looked at, each with C(name), C(state), C(found) and C(remedy).
  returned: success
  type: list
  elements: dict
"""


def refusal(host: str, system: str, checks: list[Check]) -> str:
    """Return why a host cannot be part of the cluster, all in one message; empty where it can."""
    reasons = reasons_of(checks)
    return reasons and (
        f"{host} runs {system} and cannot be part of the cluster:\n{reasons}\n"
        "Nothing was changed there. Mend the host or take it out of the inventory. Supported are "
        f"{SUPPORTED} on x86_64, without GPUs also on aarch64 ({PLATFORMS})."
    )


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "python_version": {"type": "str", "default": ""},
            "gpus": {"type": "bool", "default": False},
            "cuda_source": {"type": "str", "choices": ["wheels", "system"], "default": "wheels"},
            "tasks": {"type": "int", "default": 1},
        },
        supports_check_mode=True,
    )
    host = module.params["host"]
    asked = Asked(
        **{name: module.params[name] for name in ("python_version", "gpus", "cuda_source", "tasks")}
    )
    facts = read_host_facts()
    checks = host_chain(facts, asked)
    reason = refusal(host, facts.distribution.name, checks)
    if reason:
        module.fail_json(msg=reason)
    for check in checks:
        if check.state == "warning":
            module.warn(f"{host}: {check.found}; {check.remedy}")
    environment, python = host_environment(facts, asked)
    module.exit_json(
        changed=False,
        environment=environment.name,
        python_version=python.version,
        interpreter=python.path,
        checks=[check.to_json() for check in checks],
    )


if __name__ == "__main__":
    main()
