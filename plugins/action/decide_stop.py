"""Find the run that stop.yml ends, from what every host said of its tasks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the trainer package is not installed

from trainer.run_start import Decision, going_on


class ActionModule(ActionBase):
    """Arguments: `runs_directory`, `found` (host -> result of trainer_tasks)."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `run` with `id` ("" where none is going on) and `folder`, or fail with every problem."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        if variables.get("ansible_limit"):
            return result | {"failed": True, "msg": "stop.yml ends a whole run; type it without --limit"}
        found = going_on(self._task.args["found"])
        if isinstance(found, Decision):
            return result | {"failed": True, "msg": "\n".join(found.problems)}
        settings = variables["cluster_settings"]
        run = {
            "id": found,
            "folder": str(Path(self._task.args["runs_directory"]).resolve() / found),
            "settings": {"training": settings["cluster"], "tasks": settings["tasks"]},
        }
        return result | {"changed": False, "run": run}
