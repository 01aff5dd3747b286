"""Ask a host for an answer as root. What goes wrong is returned, not raised, so that all hosts are asked."""

import getpass
from typing import Any

from ansible.plugins.action import ActionBase

from ..plugin_utils.reaching import ask


class ActionModule(ActionBase):
    """Takes no arguments. The task's `become` says as whom the host is asked."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `reached`, and in `summary` the host, the user who logs in, and why it was not reached."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        answer, problem = ask(self, "ansible.builtin.ping", {}, variables)
        if not problem and answer.get("ping") != "pong":
            problem = "logged in, but could not act as root: no answer"
        user = str(variables.get("ansible_user") or self._play_context.remote_user or getpass.getuser())
        summary = f"- {variables['inventory_hostname']}, user {user}: {problem or 'answered as root'}"
        return result | {"changed": False, "reached": not problem, "summary": summary}
