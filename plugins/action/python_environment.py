"""Install a locked Python environment on a host from the controller's archive of wheels."""

from pathlib import Path
from typing import Any

from ..plugin_utils.carrying import CarryingAction


class ActionModule(CarryingAction):
    """Arguments: those of the module but `archive`, which `wheels` has: a path on the controller."""

    MODULE = "psfleet.cluster.python_environment"

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the host whether its environment is complete; carry the archive where it is not."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        archive = Path(arguments["wheels"]["archive"])
        return result | self.carry(arguments, archive, task_vars or {})
