"""Write devices.txt into a run's folder: where its variables and operations were."""

from pathlib import Path
from typing import Any

from psfleet.report.devices import render

from ..plugin_utils.actions import ControllerAction


class ActionModule(ControllerAction):
    """Argument: `folder`, of the run on the controller. Without reports in it nothing is written."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        folder = Path(arguments["folder"])
        if self._task.check_mode or not any(folder.glob("devices/*.json")):
            return {}
        file, text = folder / "devices.txt", render(folder)
        if file.exists() and file.read_text(encoding="utf-8") == text:
            return {}
        file.write_text(text, encoding="utf-8")
        return {"changed": True}
