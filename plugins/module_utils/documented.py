"""The options of a module, described once: ansible-doc shows its DOCUMENTATION, and it takes those in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.module_utils import basic


def documented_module(documentation: Mapping[str, Any]) -> basic.AnsibleModule:
    """Return the module with its documented options. It supports check mode."""
    spec = argument_spec(documentation["options"])
    # Looked up now: ansible-lint, which tries the arguments of every task, puts a class of its own there.
    return basic.AnsibleModule(argument_spec=spec, supports_check_mode=True)


def argument_spec(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return documented options as AnsibleModule takes them, which knows no `description`."""
    spec = {}
    for name, option in options.items():
        spec[name] = {key: value for key, value in option.items() if key not in {"description", "suboptions"}}
        if "suboptions" in option:
            spec[name]["options"] = argument_spec(option["suboptions"])
    return spec
