"""An action that carries an archive to a host only when the host says that it needs it."""

from pathlib import Path
from typing import Any

from ansible.utils.display import Display

from psfleet.carry.long_step import REPORT_SECONDS, bytes_read, told
from trainer.host.disk_space import readable

from .actions import HostAction

display = Display()


class CarryingAction(HostAction):
    """Base of actions whose module of the same name answers `needs_archive`, and then takes `archive`."""

    def _carry(self, arguments: dict[str, Any], archive: Path) -> dict[str, Any]:
        """Ask the host; where it needs the archive, copy it there and run the module with it."""
        asked = self._run_module(arguments)
        if asked.get("failed") or self._task.check_mode or not asked.get("needs_archive"):
            return asked
        host = self.variables["inventory_hostname"]
        size = readable(archive.stat().st_size)

        def copied() -> str:
            return f"{host}: {archive.name}: {readable(bytes_read(archive))} of {size} copied"

        directory = self._make_tmp_path()
        try:
            with told(display.display, copied, REPORT_SECONDS):
                remote = self._send(archive, directory)
            with told(display.display, lambda: f"{host}: {archive.name} is being installed"):
                return self._run_module(arguments | {"archive": remote})
        finally:
            self._remove_tmp_path(directory, force=True)
