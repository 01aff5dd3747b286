"""Ask a host for an answer as root. What goes wrong is returned, not raised, so that all hosts are asked."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from textwrap import shorten
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Takes no arguments. The task's `become` says as whom the host is asked."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `reached`, and in `summary` the host, the user who logs in, and why it was not reached."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        problem = ""
        try:
            answer = self._execute_module(module_name="ansible.builtin.ping", task_vars=variables)
            if answer.get("ping") != "pong":
                problem = f"logged in, but could not act as root: {said(answer)}"
        except AnsibleConnectionFailure as error:
            problem = f"could not log in: {last_line(str(error))}"
        except AnsibleError as error:
            problem = f"logged in, but could not act as root: {shorten(str(error), 300)}"
        user = str(variables.get("ansible_user") or self._play_context.remote_user or getpass.getuser())
        summary = f"- {variables['inventory_hostname']}, user {user}: {problem or 'answered as root'}"
        return result | {"changed": False, "reached": not problem, "summary": summary}


def said(answer: Mapping[str, Any]) -> str:
    """Return where a module that failed says why."""
    for name in ("module_stderr", "module_stdout", "msg"):
        lines = [
            line for line in str(answer.get(name) or "").splitlines() if "Shared connection to" not in line
        ]
        if any(line.strip() for line in lines):
            return shorten(" ".join(lines), 300)
    return "no answer"


def last_line(text: str) -> str:
    """Return the last line with anything in it: ssh ends with the cause."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no answer")
