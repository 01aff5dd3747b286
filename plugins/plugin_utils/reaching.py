"""Have a host that may not answer take a step: what goes wrong is returned in words, not raised."""

from collections.abc import Callable, Mapping
from textwrap import shorten
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ..modules.host_steps import TOO_OLD
from .actions import AnswerError, HostAction
from .running import NotRunError

ANOTHER_PYTHON = "set ansible_python_interpreter to a newer one"


def ask(action: HostAction, step: str, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Return the answer to a step that does not fail, and ""; or what kept the host from it, in words."""
    return answered(lambda: action._take(step, arguments))


def answered(asked: Callable[[], Mapping[str, Any]]) -> tuple[Mapping[str, Any], str]:
    """Return what a host answers that is `asked`, and ""; or what kept it from an answer, in words."""
    try:
        answer = asked()
    except AnsibleConnectionFailure as error:
        return {}, f"could not log in: {last_line(str(error))}"
    except NotRunError as error:
        return {}, f"logged in, but {hindrance(error.output)}"
    except AnswerError as error:
        return {}, shorten(str(error), 300)
    except AnsibleError as error:
        return {}, f"logged in, but could not act as root: {shorten(str(error), 300)}"
    # A step that fails has been reached, and says why it does.
    if answer.get("failed") and "failed_step" not in answer:
        return {}, f"logged in, but it failed there: {shorten(answer['msg'], 300)}"
    return answer, ""


def hindrance(answer: Mapping[str, Any]) -> str:
    """Return what kept a module from an answer on a host where one could log in, by what came instead."""
    if "module interpreter" in str(answer.get("msg")):
        return f"found no Python there: {said(answer)}"
    output = "\n".join(str(answer.get(name) or "") for name in ("msg", "stdout", "stderr"))
    if TOO_OLD in output:
        return f"{said(answer)}: {ANOTHER_PYTHON}"
    if "Traceback (most recent call last)" in output or "SyntaxError" in output:
        # With a terminal, ssh has the last word.
        words = shorten(last_line(without_ssh(output)), 300)
        older = f": {TOO_OLD}" if "SyntaxError" in words else ""
        return f"could not run Python there: {words}{older}"
    if answer.get("rc") == 0:
        return f"its Python gave no answer: {said(answer)}"
    return f"could not act as root: {said(answer)}"


def said(answer: Mapping[str, Any]) -> str:
    """Return which words say why a module gave no answer."""
    names = ("stderr", "stdout", "msg")
    outputs = (without_ssh(str(answer.get(name) or "")) for name in names)
    return next((shorten(output, 300) for output in outputs if output.strip()), "no answer")


def without_ssh(output: str) -> str:
    """Return a host's output without the farewell of ssh."""
    return "\n".join(line for line in output.splitlines() if "Shared connection to" not in line)


def last_line(text: str) -> str:
    """Return the last line with anything in it: ssh ends with the cause."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no answer")
