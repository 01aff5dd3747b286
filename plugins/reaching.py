"""Run a module on a host that may not answer: what goes wrong is returned in words, not raised."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase


def ask(
    action: ActionBase, module: str, arguments: Mapping[str, Any], variables: Mapping[str, Any]
) -> tuple[Mapping[str, Any], str]:
    """Return the module's answer and "", or what kept the host from giving one.

    `variables` are the task's. An answer is one that the module gave, and without having failed.
    """
    try:
        answer = action._execute_module(
            module_name=module, module_args=dict(arguments), task_vars=dict(variables)
        )
    except AnsibleConnectionFailure as error:
        return {}, f"could not log in: {last_line(str(error))}"
    except AnsibleError as error:
        return {}, f"logged in, but could not act as root: {shorten(str(error), 300)}"
    if answer.get("failed") or answer.get("unreachable"):
        return {}, f"logged in, but could not act as root: {said(answer)}"
    return answer, ""


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
