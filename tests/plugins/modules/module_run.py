"""A module, or an action of the controller, in this process, with arguments as Ansible gives them."""

import json
from contextlib import redirect_stdout, suppress
from io import StringIO
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args

from plugins.modules import host_facts
from psfleet.run.host_answers import checked
from tests.plugins.module_utils.described import DESCRIBED


def module_answer(module: ModuleType, /, *, check: bool = False, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return what a module prints as its answer; `failed` is in it where it has failed."""
    given = {**arguments, "_ansible_check_mode": check, "_ansible_diff": True}
    printed = StringIO()
    # In a process that has loaded the controller's Ansible, it would print them.
    warnings: list[str] = []
    warn = patch.object(AnsibleModule, "warn", lambda _self, text: warnings.append(text))
    with patch_module_args(given), warn, redirect_stdout(printed), suppress(SystemExit):
        module.main()
    answer: dict[str, Any] = json.loads(printed.getvalue())
    answer.pop("invocation", None)
    if warnings:
        answer["warnings"] = warnings
    if not answer.get("failed"):
        checked(module.__name__.rpartition(".")[2], answer, arguments)
    return answer


def action_of(kind: type[object], *, check: bool = False, **variables: object) -> Any:  # noqa: ANN401
    """Return an action of a play that has these variables; it has no connection."""
    action: Any = kind.__new__(kind)
    action._task = SimpleNamespace(check_mode=check)
    action.variables = {"ansible_inventory_sources": ["hosts"], **variables}
    return action


def fact_of(part: str, *, check: bool = False, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the fact that a part of `host_facts` makes, or the answer that it failed."""
    answer = module_answer(host_facts, check=check, systems=DESCRIBED, **{part: arguments})
    fact: dict[str, Any] = answer if answer.get("failed") else answer["ansible_facts"][f"psfleet_{part}"]
    return fact
