"""Have a host take one step, or run one of Ansible's own modules there, and check what it answers."""

from typing import Any

from ..plugin_utils.carrying import CarryingAction


class ActionModule(CarryingAction):
    """Arguments: `step` (a name, or a whole one of Ansible's) and its `arguments`. Returns its answer."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._run_steps([(arguments["step"], arguments["arguments"])])[0]
