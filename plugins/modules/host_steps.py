"""Takes several steps on a host in one round trip; the only module that Ansible ships to hosts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..module_utils.step import Step, argument_spec, is_last

# The oldest version on hosts; Ansible itself would accept an older one.
OLDEST_PYTHON = (3, 10)
TOO_OLD = f"psfleet needs Python {'.'.join(map(str, OLDEST_PYTHON))} or newer there"

if TYPE_CHECKING:
    # Ansible ships every module that is imported here. A host imports only those of its steps.
    from ..module_utils.steps import (  # noqa: F401
        carried_files,
        content_release,
        gpu_facts,
        host_doctor,
        host_lease,
        host_peers,
        host_requirements,
        host_reset,
        host_runs,
        managed_files,
        port_fence,
        python_environment,
        require_root,
        run_archive,
        ssh_identity,
        ssh_login,
        trainer_tasks,
        trainer_units,
        unneeded_content,
        wireguard_mesh,
    )

DOCUMENTATION = r"""
module: host_steps
short_description: Perform several steps on a host in one round trip
description:
  - The action of this name carries the archives that steps need, and checks what they answer.
  - The steps are the files of C(plugins/module_utils/steps/); the C(OPTIONS) of each are its arguments.
author: psfleet
options:
  steps:
    description: Steps in their order. A step that fails, or needs an archive, is the last that is performed.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: What the step does, for people., type: str, default: ""}
      step: {description: Name of the step., type: str, required: true}
      arguments: {description: Its arguments., type: dict, default: {}}
      fact: {description: The host's fact that takes the answer., type: str, default: ""}
"""

EXAMPLES = r"""
- name: Have a directory for scratch files
  psfleet.cluster.host_steps:
    steps:
      - name: Make the directory
        step: managed_files
        arguments: {directories: [{path: /srv/scratch, mode: "0755"}]}
"""

RETURN = r"""
answers:
  description: One answer for each step that was performed.
  returned: always
  type: list
  elements: dict
"""


def main() -> None:
    """Run the module."""
    options = {
        "name": {"default": ""},
        "step": {"required": True},
        "arguments": {"type": "dict", "default": {}},
        "fact": {"default": ""},
    }
    steps = {"type": "list", "elements": "dict", "required": True, "options": options}
    module = AnsibleModule({"steps": steps}, supports_check_mode=True)
    if problem := python_problem(sys.version_info[:3]):
        module.fail_json(msg=problem)
    answers: list[dict[str, Any]] = []
    for call in module.params["steps"]:
        answers.append(answer_of(module, call["step"], call["arguments"]))
        if is_last(answers[-1], check_mode=module.check_mode):
            break
    module.exit_json(changed=any(answer.get("changed") for answer in answers), answers=answers)


def python_problem(version: tuple[int, ...]) -> str:
    """Return why a host's Python cannot take steps, "" if it can."""
    return f"{TOO_OLD}, and its Python is {'.'.join(map(str, version))}" if version < OLDEST_PYTHON else ""


def answer_of(module: AnsibleModule, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Take a step, and return its answer."""
    taken = import_module(f"..module_utils.steps.{name}", __package__)
    given = ArgumentSpecValidator(argument_spec(taken.OPTIONS)).validate(arguments)
    if given.error_messages:
        return {"failed": True, "msg": f"{name}: {', '.join(given.error_messages)}"}
    step = Step(given.validated_parameters, check_mode=module.check_mode, diff=module._diff)
    with suppress(SystemExit):
        taken.run(step)
    return step.answer


if __name__ == "__main__":
    main()
