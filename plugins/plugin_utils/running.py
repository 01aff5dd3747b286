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
    """A module did not run on a host, or its output is no answer.

    `output` has what came instead: `msg`, `stdout`, `stderr` and `rc`; any of them may be missing.
    """

    def __init__(self, name: str, output: Mapping[str, Any]) -> None:
        printed = [str(output.get(part) or "").strip() for part in ("msg", "stdout", "stderr")]
        super().__init__("\n".join([f"{name} gave no answer", *filter(None, printed)]))
        self.output = output


def answer_of(module: str, run: Callable[[], dict[str, Any]]) -> Mapping[str, Any]:
    """Call `run`, which runs the `module` on a host; return the host's answer, perhaps with `failed`.

    Ansible's objects for warnings and errors in it become texts. Raises NotRunError if there is no answer,
    UnusableError if Ansible cannot read it, and AnsibleError as `run` does.
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
    """Return what a module printed, with the texts in `warnings` and `deprecations` escaped for a terminal.

    The JSON object begins at the first line that begins with "{", as for Ansible. Text without a valid object
    is returned unchanged.
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
