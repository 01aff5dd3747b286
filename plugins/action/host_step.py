"""Runs one step, or one of Ansible's own modules, on a host, and checks the answer."""

from typing import Any

from ..plugin_utils.carrying import CarryingAction


class ActionModule(CarryingAction):
    """Arguments: `step` (its name, or the full name of a module) and its `arguments`. Returns the answer."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._run_steps([(arguments["step"], arguments["arguments"])])[0]
