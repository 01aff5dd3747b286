"""What all modules of this collection have in common."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

# The oldest version on hosts; Ansible itself would accept an older one.
OLDEST_PYTHON = (3, 10)
NOT_ROOT = "the user that becomes root there has the number"
TOO_OLD = f"psfleet needs Python {'.'.join(map(str, OLDEST_PYTHON))} or newer there"


def made(arguments: Mapping[str, Any]) -> AnsibleModule:
    """Return the module with these arguments, an `argument_spec`; it fails on a host with an old Python."""
    module = AnsibleModule(dict(arguments), supports_check_mode=True)
    if problem := python_problem(sys.version_info[:3]):
        module.fail_json(msg=problem)
    return module


def python_problem(version: tuple[int, ...]) -> str:
    """Return why a host's Python cannot run the modules, "" if it can."""
    return f"{TOO_OLD}, and its Python is {'.'.join(map(str, version))}" if version < OLDEST_PYTHON else ""
