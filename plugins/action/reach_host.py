"""Ask a host for an answer as root. What goes wrong is returned, not raised, so that all hosts are asked."""

import getpass
import shlex
from typing import Any

from ..plugin_utils.actions import HostAction
from ..plugin_utils.reaching import OLDEST_PYTHON, answered, ask


class ActionModule(HostAction):
    """Takes no arguments. The task's `become` says as whom the host is asked.

    Returns `reached`, and in `summary` the host, the user who logs in, and why it was not reached.
    """

    def _act(self, _arguments: dict[str, Any]) -> dict[str, Any]:
        problem = self._problem()
        user = str(self.variables.get("ansible_user") or self._play_context.remote_user or getpass.getuser())
        summary = f"- {self.variables['inventory_hostname']}, user {user}: {problem or 'answered as root'}"
        return {"reached": not problem, "summary": summary}

    def _problem(self) -> str:
        """Return what keeps the host from running modules as root, in words; empty where nothing does."""
        python = str(self.variables.get("ansible_python_interpreter", "python3"))
        oldest = tuple(map(int, OLDEST_PYTHON.split(".")))
        program = f"import os, sys; print(os.geteuid(), sys.version_info >= {oldest})"
        command = shlex.join([python, "-c", program])
        answer, problem = answered(lambda: self._low_level_execute_command(command, sudoable=True))
        if problem or answer["stdout"].split() == ["0", "True"]:
            return problem
        # A module takes ten times as long, finds other interpreters, and tells why it cannot run.
        answer, problem = ask(self, {}, "ansible.builtin.ping")
        if not problem and answer.get("ping") != "pong":
            problem = "logged in, but could not act as root: no answer"
        return problem
