"""What a run's folder on the controller says of the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.plan import ClusterPlan
from trainer.run_roles import described_tasks


def begun_settings(folder: Path) -> dict[str, Any]:
    """Return what a run began with, as `run_settings` returns it; empty for a run that is new."""
    values = read_object(folder / "settings.json")
    if not values:
        return {}
    return {"cluster": values["training"], "tasks": values["tasks"], "program": values.get("program")}


def tasks_of_run(plan: Mapping[str, Any], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tasks of a run on this plan (`described_tasks`). Raises ValueError where one is damaged."""
    return described_tasks(
        ClusterPlan.from_json(plan), settings["cluster"], program=settings.get("program") is not None
    )


def read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file, empty where there is none."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
