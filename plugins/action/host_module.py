"""Runs a module of this collection on a host, and checks the answer (meta/runtime.yml lists the modules)."""

from typing import Any

from ..plugin_utils.actions import HostAction
from ..plugin_utils.running import COLLECTION


class ActionModule(HostAction):
    """Runs the module with the action's own name, with the same arguments; returns the module's answer."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._run_module(self._task.action.removeprefix(COLLECTION), arguments)
