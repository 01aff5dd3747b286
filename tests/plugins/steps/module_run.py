"""A step of a host, or an action of the controller, in this process, with arguments as Ansible gives them."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from plugins.module_utils.step import Step
from plugins.modules import host_steps
from psfleet.run.host_answers import checked


def answer_of(run: Callable[[Step], None], *, check: bool = False, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the answer to a step; `failed` is in it where it has failed. Else the controller takes it."""
    module: Any = SimpleNamespace(check_mode=check, _diff=True)
    name = run.__module__.rpartition(".")[2]
    answer: dict[str, Any] = json.loads(json.dumps(host_steps.answer_of(module, name, arguments)))
    if not answer.get("failed"):
        checked(name, answer, arguments)
    return answer


def action_of(kind: type[object], *, check: bool = False, **variables: object) -> Any:  # noqa: ANN401
    """Return an action of a play that has these variables; it has no connection."""
    action: Any = kind.__new__(kind)
    action._task = SimpleNamespace(check_mode=check)
    action.variables = {"ansible_inventory_sources": ["hosts"], **variables}
    return action
