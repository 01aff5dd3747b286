"""Write the manifest of a run's folder, once everything of the run has been collected into it."""

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from psfleet.evidence.manifest import FILE_NAME, Manifest


class ActionModule(ActionBase):
    """Argument: `folder`."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `files`, how many the manifest names; fail where it could not be written whole."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        folder = Path(self._task.args["folder"])
        if self._task.check_mode:
            return result | {"changed": False}
        file = folder / FILE_NAME
        try:
            before = file.read_bytes() if file.exists() else b""
            manifest = Manifest.of(folder)
            manifest.write(folder)
            changed = file.read_bytes() != before
        except OSError as error:
            return result | {
                "failed": True,
                "msg": f"{file} was not written: {error.filename}: {error.strerror}",
            }
        return result | {"changed": changed, "files": len(manifest.files)}
