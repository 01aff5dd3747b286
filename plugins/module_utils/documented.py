"""The options of a module, described once: ansible-doc shows its DOCUMENTATION, and it takes those in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule


def documented_module(documentation: Mapping[str, Any]) -> AnsibleModule:
    """Return the module with its documented options. It supports check mode."""
    from ansible.module_utils import basic

    spec = argument_spec(documentation["options"])
    # Looked up now: ansible-lint, which tries the arguments of every task, puts a class of its own there.
    return basic.AnsibleModule(argument_spec=spec, supports_check_mode=True)


def argument_spec(options: Mapping[str, Any], path: str = "path") -> dict[str, Any]:
    """Return documented options as AnsibleModule takes them, which knows no `description`.

    `path` is what to take the type `path` for.
    """
    spec = {}
    for name, option in options.items():
        spec[name] = {
            key: path if value == "path" and key in {"type", "elements"} else value
            for key, value in option.items()
            if key not in {"description", "suboptions"}
        }
        if "suboptions" in option:
            spec[name]["options"] = argument_spec(option["suboptions"], path)
    return spec
