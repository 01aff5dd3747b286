"""Install a locked Python environment on a host from the controller's archive of wheels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the plugins are not installed

from plugins.carrying import CarryingAction


class ActionModule(CarryingAction):
    """Arguments: those of the module, where `archive` is a path on the controller."""

    MODULE = "python_environment"

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask the host whether its environment is complete; carry the archive where it is not."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        archive = Path(arguments.pop("archive"))
        result.update(self.carry(arguments, archive, task_vars or {}))
        return result
