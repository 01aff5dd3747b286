"""Decide once for the whole cluster whether a run starts, is attached to, or is refused."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the trainer package is not installed

from trainer.run_start import FolderState, decide


class ActionModule(ActionBase):
    """Arguments: `run_id` ("" for a new one), `runs_directory`, `found` (host -> result of trainer_tasks)."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `run` with `id`, `action` and `folder`, or fail with every problem."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        plan = variables["cluster_plan"]
        arguments = self._task.args
        now = datetime.now(tz=timezone.utc)
        run_id = str(arguments["run_id"] or f"{plan['cluster_name']}-{now:%Y%m%d-%H%M%S}")
        folder = Path(arguments["runs_directory"]).resolve() / run_id
        decision = decide(run_id, plan, arguments["found"], folder_state(folder))
        if decision.action == "refuse":
            return result | {
                "failed": True,
                "msg": "The run cannot start:\n- " + "\n- ".join(decision.problems),
            }
        run = {"id": run_id, "action": decision.action, "folder": str(folder)}
        return result | {"changed": False, "run": run}


def folder_state(folder: Path) -> FolderState:
    """Return what the run folder's state.json says; a folder without one counts as ended."""
    if not folder.exists():
        return ""
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8")).get("state")
    except (OSError, ValueError, AttributeError):
        return "ended"
    return state if state in {"running", "stopped"} else "ended"
