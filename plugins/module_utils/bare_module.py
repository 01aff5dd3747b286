"""Modules of psfleet run by Python alone: what AnsibleModule would be to them, and how they begin."""

from __future__ import annotations

import json
import pkgutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from . import documented


class BareModule:
    """What a module is told, in `params` that the controller has looked at. It answers as AnsibleModule."""

    def __init__(self, params: Mapping[str, Any], *, check_mode: bool, diff: bool) -> None:
        self.params, self.check_mode, self._diff = params, check_mode, diff
        self.answer: dict[str, Any] = {"changed": False}

    def warn(self, warning: str) -> None:
        """Have the controller warn."""
        self.answer.setdefault("warnings", []).append(warning)

    def exit_json(self, **answer: Any) -> NoReturn:  # noqa: ANN401
        """Answer, and leave."""
        self.answer.update(answer)
        sys.exit()

    def fail_json(self, msg: str, **answer: Any) -> NoReturn:  # noqa: ANN401
        """Answer that it failed, and leave."""
        self.exit_json(**answer, msg=msg, failed=True)


def is_last(answer: Mapping[str, Any], *, check_mode: bool) -> bool:
    """Tell whether no module is run after one with this answer."""
    return bool(answer.get("failed") or (answer.get("needs_archive") and not check_mode))


def main() -> None:
    """Run the modules that the archive of this file was sent for, and print their answers.

    The first that fails, or needs an archive before it can change what it would, is the last.
    """
    told = json.loads(pkgutil.get_data(__package__, "told.json") or b"")
    modules: list[BareModule] = []
    documented.documented_module = lambda _documentation: modules[-1]  # type: ignore[assignment]
    for name, parameters in told["modules"]:
        modules.append(BareModule(parameters, check_mode=told["check_mode"], diff=told["diff"]))
        with suppress(SystemExit):
            import_module(f"plugins.modules.{name}").main()
        if is_last(modules[-1].answer, check_mode=told["check_mode"]):
            break
    sys.stdout.write(json.dumps({"answers": [module.answer for module in modules]}))
