"""Ask a host for an answer as root. What goes wrong is returned, not raised, so that all hosts are asked."""

import getpass
from typing import Any

from ..plugin_utils.actions import HostAction
from ..plugin_utils.reaching import ask


class ActionModule(HostAction):
    """Takes no arguments. The task's `become` says as whom the host is asked.

    Returns `reached`, and in `summary` the host, the user who logs in, and why it was not reached.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        answer, problem = ask(self, arguments, "ansible.builtin.ping")
        if not problem and answer.get("ping") != "pong":
            problem = "logged in, but could not act as root: no answer"
        user = str(self.variables.get("ansible_user") or self._play_context.remote_user or getpass.getuser())
        summary = f"- {self.variables['inventory_hostname']}, user {user}: {problem or 'answered as root'}"
        return {"reached": not problem, "summary": summary}
