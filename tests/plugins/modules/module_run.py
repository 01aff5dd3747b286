"""A module, or an action of the controller, in this process, with arguments as Ansible gives them."""

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from types import SimpleNamespace
from typing import Any

from ansible.module_utils.testing import patch_module_args

from psfleet.run.host_answers import checked


def answer_of(main: Callable[[], None], *, check: bool = False, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return what the module says; `failed` is in it where it has failed. Else the controller takes it."""
    given = {**arguments, "_ansible_check_mode": check, "_ansible_diff": True, "_ansible_remote_tmp": "/tmp"}
    printed = io.StringIO()
    with patch_module_args(given), redirect_stdout(printed), suppress(SystemExit):
        main()
    answer: dict[str, Any] = json.loads(printed.getvalue())
    # Without an action in the process Ansible writes a warning as an object.
    if warnings := answer.get("warnings"):
        answer["warnings"] = [each if isinstance(each, str) else each["event"]["msg"] for each in warnings]
    if not answer.get("failed"):
        checked(main.__module__.rpartition(".")[2], answer, arguments)
    return answer


def action_of(kind: type[object], *, check: bool = False, **variables: object) -> Any:  # noqa: ANN401
    """Return an action of a play that has these variables; it has no connection."""
    action: Any = kind.__new__(kind)
    action._task = SimpleNamespace(check_mode=check)
    action.variables = {"ansible_inventory_sources": ["hosts"], **variables}
    return action
