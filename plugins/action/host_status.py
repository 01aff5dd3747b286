"""Queries a host's tasks for status.yml. A host without an answer has a reason, and does not fail."""

from typing import Any

from ..plugin_utils.actions import HostAction
from ..plugin_utils.reaching import ask


class ActionModule(HostAction):
    """Arguments: `tasks` (of the host by the plan), `plan_hash`, `paths` (`cluster_paths`).

    Returns `problem` ("" if the host answered), `deployed` and `tasks`, as trainer_tasks does.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        arguments |= {"others": True, "details": True}
        answer, problem = ask(self, "trainer_tasks", arguments)
        return {
            "problem": problem,
            "deployed": answer.get("deployed", {}),
            "tasks": answer.get("tasks", []),
            # The table shows everything; with -v Ansible would print this before it.
            "_ansible_verbose_override": True,
        }
