"""Write devices.txt into a run's folder: where its variables and operations were."""

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from psfleet.report.devices import render

FILE = "devices.txt"


class ActionModule(ActionBase):
    """Argument: `folder`, of the run on the controller. Without reports in it nothing is written."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return whether the text changed."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        folder = Path(self._task.args["folder"])
        if self._task.check_mode or not any(folder.glob("devices/*.json")):
            return result | {"changed": False}
        return result | {"changed": write_report(folder)}


def write_report(folder: Path) -> bool:
    """Write the report over `folder/devices/`; return whether that changed it."""
    file, text = folder / FILE, render(folder)
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return False
    file.write_text(text, encoding="utf-8")
    return True
