"""Queries a host as root. A problem is returned rather than raised, so that all hosts are queried."""

import getpass
from typing import Any

from ..plugin_utils.carrying import StepsAction
from ..plugin_utils.reaching import answer_or_problem

ROOT = {"name": "Act as root", "step": "require_root", "arguments": {}}


class ActionModule(StepsAction):
    """Argument `steps`: further steps, as for `host_steps`. The task's `become` selects the user.

    Returns `reached`; `summary` with the host, the login user and the problem, if any; and the result of
    `host_steps`. Fails if a step fails on a host that was reached.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        answer, problem = answer_or_problem(
            lambda: self._run_steps_and_summarise([ROOT, *arguments.get("steps", ())])
        )
        # Other steps fail on a host that was reached.
        if answer.get("failed_step") == ROOT["name"]:
            answer, problem = {}, f"logged in, but could not act as root: {answer['msg']}"
        user = str(self.variables.get("ansible_user") or self._play_context.remote_user or getpass.getuser())
        summary = f"- {self.variables['inventory_hostname']}, user {user}: {problem or 'answered as root'}"
        return {**answer, "reached": not problem, "summary": summary}
