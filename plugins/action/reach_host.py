"""Ask a host for an answer as root. What goes wrong is returned, not raised, so that all hosts are asked."""

import getpass
from typing import Any

from ..plugin_utils.carrying import StepsAction
from ..plugin_utils.reaching import answered

ROOT = {"name": "Act as root", "step": "require_root", "arguments": {}}


class ActionModule(StepsAction):
    """Argument `steps`: what else it is asked, as that of `host_steps`. The task's `become` says as whom.

    Returns `reached`, in `summary` the host, the user who logs in, and why it was not reached; and what
    `host_steps` returns. It fails where a step does, which no host does that is not reached.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        answer, problem = answered(lambda: self._took([ROOT, *arguments.get("steps", ())]))
        user = str(self.variables.get("ansible_user") or self._play_context.remote_user or getpass.getuser())
        summary = f"- {self.variables['inventory_hostname']}, user {user}: {problem or 'answered as root'}"
        return {**answer, "reached": not problem, "summary": summary}
