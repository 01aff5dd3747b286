"""A host step: its parameters, and its answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NoReturn


class Step:
    """The context of a step: checked `params`, and AnsibleModule's methods for the answer."""

    def __init__(self, params: Mapping[str, Any], *, check_mode: bool, diff: bool) -> None:
        self.params, self.check_mode, self.diff = params, check_mode, diff
        self.answer: dict[str, Any] = {"changed": False}

    def warn(self, warning: str) -> None:
        """Add a warning for the controller to print."""
        self.answer.setdefault("warnings", []).append(warning)

    def exit_json(self, **answer: Any) -> NoReturn:  # noqa: ANN401
        """Add to the answer, and end the step."""
        self.answer.update(answer)
        sys.exit()

    def fail_json(self, msg: str, **answer: Any) -> NoReturn:  # noqa: ANN401
        """Answer that the step failed, and end it."""
        self.exit_json(**answer, msg=msg, failed=True)


def is_last(answer: Mapping[str, Any], *, check_mode: bool) -> bool:
    """Return whether a host takes no step after one with this answer."""
    return bool(answer.get("failed") or (answer.get("needs_archive") and not check_mode))


def argument_spec(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `OPTIONS` of a step as an argument spec of Ansible's, which has no `description`."""
    spec = {}
    for name, option in options.items():
        spec[name] = {key: value for key, value in option.items() if key not in {"description", "suboptions"}}
        if "suboptions" in option:
            spec[name]["options"] = argument_spec(option["suboptions"])
    return spec
