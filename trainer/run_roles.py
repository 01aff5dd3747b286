"""What the tasks of a run are to each other: who starts and ends first, who leads, who listens where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from trainer.plan import ClusterPlan
from trainer.run_tasks import SERVER, RunTask, has_one_client, run_tasks
from trainer.settings import TrainingSettings

# Clients compute with what servers and ps hold: they start last and end first.
Role = Literal["client", "server", "ps"]


def described_tasks(plan: ClusterPlan, training: Mapping[str, Any], *, program: bool) -> list[dict[str, Any]]:
    """Return the tasks of a run, each with `name`, `job`, `index`, `host`, `role` and `address`.

    `training` holds the chief's settings; what a run of an older release lacks there has its default.
    `address` is where the task listens ("10.89.0.11:2222"), empty where another task listens for it.
    Raises SettingsError where `training` is damaged.
    """
    settings = TrainingSettings.from_mapping(training)
    tasks = run_tasks(plan, settings, program)
    return [
        {
            "name": task.name,
            "job": task.job,
            "index": task.index,
            "host": task.host,
            "role": role_of(task, plan, settings, program=program),
            "address": _address(task, plan, tasks, settings, program=program),
        }
        for task in tasks
    ]


def lead_of(tasks: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the task whose end is the run's: a program's chief, else worker 0."""
    by_name = {task["name"]: task for task in tasks}
    return by_name.get("chief0") or by_name["worker0"]


def role_of(task: RunTask, plan: ClusterPlan, settings: TrainingSettings, *, program: bool) -> Role:
    """Return what a task is to the others."""
    if task.job == "ps":
        return "ps"
    if task.job == SERVER:
        return "server"
    coordinated = bool(plan.tasks_of("chief")) if program else has_one_client(settings.replication)
    if not coordinated:
        return "client"
    # One task computes on all the others.
    return "client" if task.job == "chief" or (task.index == 0 and not program) else "server"


def _address(
    task: RunTask,
    plan: ClusterPlan,
    tasks: tuple[RunTask, ...],
    settings: TrainingSettings,
    *,
    program: bool,
) -> str:
    if not program and settings.replication == "local":
        return ""
    served = {other.index for other in tasks if other.job == SERVER}
    if task.job == "worker" and task.index in served:
        return ""
    name = f"worker{task.index}" if task.job == SERVER else task.name
    return next(planned.target for planned in plan.tasks if planned.name == name)
