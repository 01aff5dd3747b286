"""An action that carries an archive to a host only when the host says that it needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase


class CarryingAction(ActionBase):
    """Base of actions whose module of the same name answers `needs_archive`, and then takes `archive`."""

    MODULE = ""

    def carry(self, arguments: dict[str, Any], archive: Path, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Ask the host; where it needs the archive, copy it there and run the module with it."""
        asked: dict[str, Any] = self._execute_module(self.MODULE, arguments, task_vars=task_vars)
        if asked.get("failed") or self._task.check_mode or not asked.get("needs_archive"):
            return asked
        directory = self._make_tmp_path()
        try:
            remote = self._connection._shell.join_path(directory, archive.name)
            self._transfer_file(str(archive), remote)
            self._fixup_perms2((directory, remote))
            done: dict[str, Any] = self._execute_module(
                self.MODULE, {**arguments, "archive": remote}, task_vars=task_vars
            )
        finally:
            self._remove_tmp_path(directory, force=True)
        return done
