"""What all modules of this collection share."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

# The oldest Python version on hosts; Ansible itself would accept an older version.
OLDEST_PYTHON = (3, 10)
NOT_ROOT = "the user that becomes root there has the number"
TOO_OLD = f"psfleet needs Python {'.'.join(map(str, OLDEST_PYTHON))} or newer there"

if TYPE_CHECKING:  # Python 3.8 accepts this type only in annotations
    States = Mapping[str, Collection[str]]  # state of a module -> names of arguments


def make_module(arguments: Mapping[str, Any]) -> AnsibleModule:
    """Return a module with these arguments (its `argument_spec`), which supports check mode.

    If the host's Python is older than OLDEST_PYTHON, the process ends here, and the module has failed.
    """
    return _on_new_python(AnsibleModule(dict(arguments), supports_check_mode=True))


def make_module_with_states(
    arguments: Mapping[str, Any], required: States, optional: States
) -> AnsibleModule:
    """Return a module whose argument `state` decides which other arguments it takes.

    If an argument is missing, or belongs only to other states, the process ends here, and the module has
    failed.

    Args:
        arguments: the `argument_spec`. Arguments that neither table below names belong to all states.
        required: {state: the arguments that it requires}.
        optional: {state: the further arguments that it takes}.

    """
    rules = [("state", state, list(names)) for state, names in required.items()]
    module = _on_new_python(AnsibleModule(dict(arguments), supports_check_mode=True, required_if=rules))
    state = module.params["state"]
    own = {*required.get(state, ()), *optional.get(state, ())}
    other = {name for table in (required, optional) for names in table.values() for name in names} - own
    wrong = [name for name in other if module.params[name] != arguments[name].get("default")]
    if wrong:
        module.fail_json(msg=f"state is {state}, which takes no {' and no '.join(sorted(wrong))}")
    return module


def _on_new_python(module: AnsibleModule) -> AnsibleModule:
    if problem := python_problem(sys.version_info[:3]):
        module.fail_json(msg=problem)
    return module


def python_problem(version: tuple[int, ...]) -> str:
    """Return, in words, why a version of Python, such as (3, 9, 2), cannot run the modules; "" if it can."""
    return f"{TOO_OLD}, and its Python is {'.'.join(map(str, version))}" if version < OLDEST_PYTHON else ""
