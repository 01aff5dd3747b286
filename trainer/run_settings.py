"""What each task of a run trains: from the inventory for a new run, from its folder for one that goes on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from trainer.plan import ClusterPlan
from trainer.settings import TrainingSettings

# A ps holds parameters and knows nothing of what is trained.
_OF_PS = "barrier_deadline_seconds"


def run_settings(plan: ClusterPlan, settings: Mapping[str, TrainingSettings]) -> dict[str, Any]:
    """Return the chief's settings as `cluster`, and each task's `values` and `flags` as `tasks`."""
    tasks = {}
    for task in plan.tasks:
        values = settings[task.name].as_dict()
        flags = settings[task.name].as_flags()
        if task.job == "ps":
            values = {_OF_PS: values[_OF_PS]}
            flags = [flag for flag in flags if flag.startswith(f"--{_OF_PS}=")]
        tasks[task.name] = {"values": values, "flags": " ".join(flags)}
    return {"cluster": settings[plan.chief.name].as_dict(), "tasks": tasks}


def resumed_settings(
    plan: ClusterPlan,
    begun: Mapping[str, Any],
    today: Mapping[str, Any],
    chosen: Collection[str],
) -> dict[str, Any]:
    """Return the settings of a run that goes on: those it began with, but for what is chosen anew.

    `begun` and `today` are objects as `run_settings` returns them; `chosen` names the settings that were
    given on the command line. Raises ValueError where that would make it another run, SettingsError where
    what it began with is damaged.
    """
    model, wanted = begun["cluster"]["model"], today["cluster"]["model"]
    if "model" in chosen and model != wanted:
        raise ValueError(f"it trains {model}, and a run keeps its model; trainer_model is {wanted!r}")

    def of(task: str) -> TrainingSettings:
        new = {name: value for name, value in today["tasks"][task]["values"].items() if name in chosen}
        return TrainingSettings.from_mapping({**begun["tasks"][task]["values"], **new})

    return run_settings(plan, {task.name: of(task.name) for task in plan.tasks})
