"""Install a locked Python environment on a host from the controller's archive of wheels."""

from pathlib import Path
from typing import Any

from ..plugin_utils.carrying import CarryingAction


class ActionModule(CarryingAction):
    """Arguments: those of the module but `archive`, which `wheels` has: a path on the controller."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._carry(arguments, Path(arguments["wheels"]["archive"]))
