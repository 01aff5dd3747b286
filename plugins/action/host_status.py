"""Look at a host's tasks for status.yml. A host that gives no answer says why, and does not fail."""

from typing import Any

from ..plugin_utils.actions import HostAction
from ..plugin_utils.reaching import ask


class ActionModule(HostAction):
    """Arguments: `tasks` (those that the host has by the plan), `plan_hash`, `paths` (`cluster_paths`).

    Returns `problem` ("" where the host answered), `deployed` and `tasks`, as trainer_tasks does.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        arguments |= {"others": True, "details": True}
        answer, problem = ask(self, "trainer_tasks", arguments)
        return {
            "problem": problem,
            "deployed": answer.get("deployed", {}),
            "tasks": answer.get("tasks", []),
            # The table says it all; with -v Ansible would print this before it.
            "_ansible_verbose_override": True,
        }
