"""Look at a host's tasks for status.yml. A host that gives no answer says why, and does not fail."""

from typing import Any

from ansible.plugins.action import ActionBase

from ..plugin_utils.reaching import ask


class ActionModule(ActionBase):
    """Arguments: `tasks` (those that the host has by the plan), `paths` (`cluster_paths`)."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `problem` ("" where the host answered), `deployed` and `tasks`, as trainer_tasks does."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = {**self._task.args, "others": True, "details": True}
        answer, problem = ask(self, "psfleet.cluster.trainer_tasks", arguments, task_vars or {})
        return result | {
            "changed": False,
            "problem": problem,
            "deployed": answer.get("deployed", {}),
            "tasks": answer.get("tasks", []),
            # The table says it all; with -v Ansible would print this before it.
            "_ansible_verbose_override": True,
        }
