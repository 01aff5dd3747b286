"""Write the manifest of a run's folder, once everything of the run has been collected into it."""

from pathlib import Path
from typing import Any

from psfleet.evidence.manifest import FILE_NAME, Manifest

from ..plugin_utils.actions import ControllerAction


class ActionModule(ControllerAction):
    """Argument: `folder`. Fails where it could not be written whole."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        folder = Path(arguments["folder"])
        if self._task.check_mode:
            return {}
        file = folder / FILE_NAME
        try:
            before = file.read_bytes() if file.exists() else b""
            Manifest.of(folder).write(folder)
            return {"changed": file.read_bytes() != before}
        except OSError as error:
            return self._failure(f"{file} was not written: {error.filename}: {error.strerror}")
