"""Runs steps on a host, by the module `host_steps` or a module of Ansible's; answers are not yet checked."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase

from psfleet.run.host_answers import UnusableError

from ..module_utils.step import is_last

MODULE = "psfleet.cluster.host_steps"

# The name of a step, or the full name of a module of Ansible's; and its arguments.
Call = tuple[str, Mapping[str, Any]]


class NotRunError(AnsibleActionFail):
    """Steps that did not run on a host, or did not answer; `output` is what came instead."""

    def __init__(self, names: str, output: Mapping[str, Any]) -> None:
        printed = [str(output.get(name) or "").strip() for name in ("msg", "stdout", "stderr")]
        super().__init__("\n".join([f"{names} gave no answer", *filter(None, printed)]))
        self.output = output


def run_on_host(
    action: ActionBase, calls: Sequence[Call], variables: Mapping[str, Any]
) -> Sequence[Mapping[str, Any]]:
    """Return a host's answers to the first calls: to one module of Ansible's, or to all steps before one.

    The last answer may be a failure, or a request for an archive. Raises UnusableError for an invalid answer,
    NotRunError if there is none.
    """
    name, arguments = calls[0]
    if "." in name:
        return [_run_module(action, name, arguments, variables)]
    ours = [*takewhile(lambda call: "." not in call[0], calls)]
    steps = [{"step": name, "arguments": dict(arguments)} for name, arguments in ours]
    answer = _run_module(action, MODULE, {"steps": steps}, variables)
    if answer.get("failed"):
        raise NotRunError(", ".join(name for name, _ in ours), answer)
    return answers_in(answer, len(ours), check_mode=action._task.check_mode)


def _run_module(
    action: ActionBase, module: str, arguments: Mapping[str, Any], variables: Mapping[str, Any]
) -> Mapping[str, Any]:
    try:
        answer: dict[str, Any] = action._execute_module(module, dict(arguments), task_vars=variables)
    except AnsibleError:
        raise
    except Exception as error:  # Ansible may crash on unexpected kinds of answers
        raise UnusableError(f"Ansible cannot read it: {type(error).__name__}: {error}") from error
    # Ansible returns the output in this form if it is no JSON.
    if "module_stdout" in answer:
        output = {name: answer.get(f"module_{name}") for name in ("stdout", "stderr")}
        raise NotRunError(module, {"msg": answer.get("msg"), "rc": answer.get("rc"), **output})
    # Ansible turns warnings and exceptions into objects.
    if isinstance(warnings := answer.get("warnings"), list):
        answer["warnings"] = [_text_of(warning) for warning in warnings]
    if answer.get("failed") and "exception" in answer:
        answer.setdefault("msg", _text_of(answer["exception"]))
    return answer


def _text_of(message: object) -> object:
    return getattr(getattr(message, "event", None), "msg", message)


def answers_in(answer: Mapping[str, Any], calls: int, *, check_mode: bool) -> Sequence[Mapping[str, Any]]:
    """Return the steps' answers in the module's answer. Raises UnusableError if they are invalid."""
    answers = answer.get("answers")
    if not isinstance(answers, list) or not 0 < len(answers) <= calls:
        raise UnusableError("it is no list of answers")
    if not all(isinstance(each, dict) for each in answers):
        raise UnusableError("one of its answers is no object")
    if len(answers) < calls and not is_last(answers[-1], check_mode=check_mode):
        raise UnusableError(f"it has {len(answers)} of {calls} answers")
    return answers
