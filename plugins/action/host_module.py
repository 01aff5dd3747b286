"""Run a module that has no action of its name (meta/runtime.yml), and look at what it answers."""

from typing import Any

from ..plugin_utils.carrying import CarryingAction


class ActionModule(CarryingAction):
    """Arguments and answer are those of the module; those of an archive are CarryingAction's."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._run_steps([(self._task.resolved_action, arguments)])[0]
