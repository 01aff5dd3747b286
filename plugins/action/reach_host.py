"""Ask a host for an answer as root. What goes wrong is returned, not raised, so that all hosts are asked."""

import getpass
import shlex
from collections.abc import Mapping
from typing import Any

from trainer.contract.progress import printable

from ..plugin_utils.carrying import StepsAction
from ..plugin_utils.host_program import OLDEST_PYTHON, PYTHON_FACT, TOO_OLD, interpreter
from ..plugin_utils.reaching import ANOTHER_PYTHON, answered, ask


class ActionModule(StepsAction):
    """Argument `steps`: what else it is asked, as that of `host_steps`. The task's `become` says as whom.

    Returns `reached`, in `summary` the host, the user who logs in, and why it was not reached; and what
    `host_steps` returns. It fails where a step does, which no host does that is not reached.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        answer, problem = self._asked(arguments["steps"]) if "steps" in arguments else ({}, self._problem())
        user = str(self.variables.get("ansible_user") or self._play_context.remote_user or getpass.getuser())
        summary = f"- {self.variables['inventory_hostname']}, user {user}: {problem or 'answered as root'}"
        return {**answer, "reached": not problem, "summary": summary}

    def _asked(self, steps: list[Mapping[str, Any]]) -> tuple[Mapping[str, Any], str]:
        """Return the answers to the steps, and what keeps the host from giving any."""
        answer, problem = answered(lambda: self._took(steps))
        if not problem.startswith("logged in"):
            return answer, problem
        cause = self._problem()
        if cause or not self._discovered_interpreter:
            return {}, cause or problem
        self.variables = {**self.variables, "ansible_facts": {PYTHON_FACT: self._discovered_interpreter}}
        return answered(lambda: self._took(steps))

    def _problem(self) -> str:
        """Return what keeps the host from running modules as root, in words; empty where nothing does."""
        program = f"import os, sys; print(os.geteuid(), sys.version_info >= {OLDEST_PYTHON}, sys.version)"
        command = f"{interpreter(self, self.variables)} -c {shlex.quote(program)}"
        answer, problem = answered(lambda: self._low_level_execute_command(command, sudoable=True))
        words = answer.get("stdout", "").split()
        if problem or words[:2] == ["0", "True"]:
            return problem
        if words[:2] == ["0", "False"]:
            return f"logged in, but {TOO_OLD}, and its Python is {printable(words[2])[:40]}: {ANOTHER_PYTHON}"
        # A module takes ten times as long, finds other interpreters, and tells why it cannot run.
        answer, problem = ask(self, {}, "ansible.builtin.ping")
        if not problem and answer.get("ping") != "pong":
            problem = "logged in, but could not act as root: no answer"
        return problem
