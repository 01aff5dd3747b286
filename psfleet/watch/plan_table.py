"""Draws the table of a plan's tasks."""

from collections.abc import Mapping
from typing import Any

from psfleet.run.table_bytes import table_bytes_of_tasks
from trainer.contract.plan import ClusterPlan
from trainer.host.wording import readable

MOST_TASKS = 40


def plan_table(plan: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return the table of a plan's tasks as text, with the first MOST_TASKS (40) tasks.

    `plan` is the fact `cluster_plan`, `settings` are a run's (`run_settings`). If its model has tables, a
    column says how many bytes of tables each task will hold.
    """
    read = ClusterPlan.from_json(plan)
    tasks, held = read.tasks, table_bytes_of_tasks(read, settings)
    rows: list[tuple[str, ...]] = [
        (task.name, task.host, task.target, ",".join(map(str, task.gpus)) or "-")
        for task in tasks[:MOST_TASKS]
    ]
    rows.insert(0, ("TASK", "HOST", "ADDRESS", "GPUS"))
    if held:
        sizes = [readable(held[task.name]) if task.name in held else "-" for task in tasks[:MOST_TASKS]]
        rows = [(*row, size) for row, size in zip(rows, ["WILL HOLD", *sizes], strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    if len(tasks) > MOST_TASKS:
        lines.append(f"and {len(tasks) - MOST_TASKS} tasks more; each host has the plan")
    return "\n".join(lines)
