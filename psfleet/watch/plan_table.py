"""Draws the table of a plan's tasks."""

from collections.abc import Mapping
from typing import Any

from trainer.contract.plan import ClusterPlan

MOST_TASKS = 40


def plan_table(plan: Mapping[str, Any]) -> str:
    """Return a row for each task of a plan (the fact `cluster_plan`), at most for the first MOST_TASKS."""
    tasks = ClusterPlan.from_json(plan).tasks
    rows = [
        (task.name, task.host, task.target, ",".join(map(str, task.gpus)) or "-")
        for task in tasks[:MOST_TASKS]
    ]
    rows.insert(0, ("TASK", "HOST", "ADDRESS", "GPUS"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    if len(tasks) > MOST_TASKS:
        lines.append(f"and {len(tasks) - MOST_TASKS} tasks more; each host has the plan")
    return "\n".join(lines)
