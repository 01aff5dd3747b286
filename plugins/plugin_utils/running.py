"""Returns a host's answer to a module, not yet checked."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError

from psfleet.run.host_answers import UnusableError
from psfleet.watch.terminal import escaped_texts

from ..module_utils.module import TOO_OLD

COLLECTION = "psfleet.cluster."


class NotRunError(AnsibleActionFail):
    """A module did not run on a host, or did not answer.

    `output` is what came instead: `msg`, `stdout`, `stderr` and `rc`, as far as there are any.
    """

    def __init__(self, name: str, output: Mapping[str, Any]) -> None:
        printed = [str(output.get(part) or "").strip() for part in ("msg", "stdout", "stderr")]
        super().__init__("\n".join([f"{name} gave no answer", *filter(None, printed)]))
        self.output = output


def answer_of(module: str, run: Callable[[], dict[str, Any]]) -> Mapping[str, Any]:
    """Return a host's answer to the module that `run` runs, in which warnings and errors are texts.

    The answer may have `failed`. Raises UnusableError for an invalid answer, and NotRunError if there is
    none.
    """
    try:
        answer = run()
    except AnsibleError:
        raise
    except Exception as error:  # Ansible may crash on unexpected kinds of answers
        raise UnusableError(f"Ansible cannot read it: {type(error).__name__}: {error}") from error
    # Ansible returns the output in this form if it is no JSON.
    if "module_stdout" in answer:
        output = {name: answer.get(f"module_{name}") for name in ("stdout", "stderr")}
        raise NotRunError(module, {"msg": answer.get("msg"), "rc": answer.get("rc"), **output})
    if answer.get("failed") is True and str(answer.get("msg", "")).startswith(TOO_OLD):
        raise NotRunError(module, answer)
    # Ansible turns warnings and exceptions into objects.
    if isinstance(warnings := answer.get("warnings"), list):
        answer["warnings"] = [_text_of(warning) for warning in warnings]
    if answer.get("failed") and "exception" in answer:
        answer.setdefault("msg", _text_of(answer["exception"]))
    return answer


def with_escaped_warnings(printed: str) -> str:
    """Return what a module printed, with the texts in its warnings and deprecations escaped.

    The JSON object begins at the line at which it begins for Ansible; without one, the text is unchanged.
    """
    begin = re.search(r"^\s*\{", printed, re.MULTILINE)
    if begin is None:
        return printed
    start = begin.end() - 1
    try:
        answer, length = json.JSONDecoder().raw_decode(printed[start:])
    except (RecursionError, ValueError):
        return printed
    escaped = {name: escaped_texts(answer[name]) for name in ("warnings", "deprecations") if name in answer}
    return printed[:start] + json.dumps(answer | escaped) + printed[start + length :]


def _text_of(message: object) -> object:
    return getattr(getattr(message, "event", None), "msg", message)
