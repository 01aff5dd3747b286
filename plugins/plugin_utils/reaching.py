"""Runs a module on a host that may not answer; a problem is returned in words, not raised."""

from collections.abc import Callable, Mapping
from textwrap import shorten
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ..module_utils.module import TOO_OLD
from .actions import AnswerError, HostAction
from .running import NotRunError

ANOTHER_PYTHON = "set ansible_python_interpreter to a newer one"


def ask(action: HostAction, module: str, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Run a module on the action's host; return (its answer, ""), or ({}, the problem in words).

    A module that fails is a problem.
    """
    answer, problem = answer_or_problem(lambda: action._run_module(module, arguments))
    if answer.get("failed"):
        return {}, f"logged in, but it failed there: {shorten(answer['msg'], 300)}"
    return answer, problem


def answer_or_problem(call: Callable[[], Mapping[str, Any]]) -> tuple[Mapping[str, Any], str]:
    """Return (what `call` returned, ""); if it raised an error of Ansible, ({}, the problem in words).

    An answer with `failed` is returned as an answer, not as a problem.
    """
    try:
        answer = call()
    except AnsibleConnectionFailure as error:
        return {}, f"could not log in: {last_line(str(error))}"
    except NotRunError as error:
        return {}, f"logged in, but {hindrance(error.output)}"
    except AnswerError as error:
        return {}, shorten(str(error), 300)
    except AnsibleError as error:
        return {}, f"logged in, but could not act as root: {shorten(str(error), 300)}"
    return answer, ""


def hindrance(answer: Mapping[str, Any]) -> str:
    """Return, in words, why a module did not answer although the login succeeded.

    `answer` is what came instead, with `msg`, `stdout`, `stderr` and `rc`, as in NotRunError.
    """
    if "module interpreter" in str(answer.get("msg")):
        return f"found no Python there: {cause_in(answer)}"
    output = "\n".join(str(answer.get(name) or "") for name in ("msg", "stdout", "stderr"))
    if TOO_OLD in output:
        return f"{cause_in(answer)}: {ANOTHER_PYTHON}"
    if "Traceback (most recent call last)" in output or "SyntaxError" in output:
        # With a terminal, ssh prints the last line.
        words = shorten(last_line(without_ssh(output)), 300)
        older = f": {TOO_OLD}" if "SyntaxError" in words else ""
        return f"could not run Python there: {words}{older}"
    if answer.get("rc") == 0:
        return f"its Python gave no answer: {cause_in(answer)}"
    return f"could not act as root: {cause_in(answer)}"


def cause_in(answer: Mapping[str, Any]) -> str:
    """Return the first of `stderr`, `stdout` and `msg` that is not empty; "no answer" if all are empty.

    A text of more than 300 characters is shortened.
    """
    names = ("stderr", "stdout", "msg")
    outputs = (without_ssh(str(answer.get(name) or "")) for name in names)
    return next((shorten(output, 300) for output in outputs if output.strip()), "no answer")


def without_ssh(output: str) -> str:
    """Return a host's output without the lines "Shared connection to ... closed.", which ssh adds."""
    return "\n".join(line for line in output.splitlines() if "Shared connection to" not in line)


def last_line(text: str) -> str:
    """Return the last line that is not blank, where ssh prints the cause; "no answer" if all are blank."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no answer")
