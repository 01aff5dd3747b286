"""Makes systemd on one host follow the plan: removed tasks, changed units, and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..host.task_units import parse_list, systemctl, systemctl_strictly, task_of
from .metrics_timer import SERVICE, TIMER, MetricsTimer
from .run_links import RunLinks

PATTERNS = ("psfleet-*@*.service", "psfleet.target", "psfleet-gpu-devices.service", TIMER, SERVICE)


def departed_units(loaded: Sequence[str], tasks: Sequence[tuple[str, int]]) -> list[str]:
    """Return the `loaded` units that belong to a task which is not in `tasks`, in the given order.

    `tasks` has (job, index) pairs. Units that belong to no task are left out.
    """
    return [unit for unit in loaded if task_of(unit) not in (None, *tasks)]


def reload_units(values: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Make systemd follow the plan; return the answer of the module `trainer_tasks`, `state: reloaded`.

    `values` are the module's arguments. The answer has `changed`, and `departed`, the units of tasks that are
    not in the plan, which are stopped; in check mode nothing is changed. This examines what systemd has
    loaded, so it also finishes an interrupted deployment. Raises OSError and ValueError.
    """
    tasks = [(str(task["job"]), int(task["index"])) for task in values["tasks"]]
    loaded = parse_list(systemctl_strictly("list-units", "--all", "--plain", "--no-legend", *PATTERNS))
    departed = departed_units(loaded, tasks)
    needs_reload = bool(loaded) and "yes" in systemctl_strictly(
        "show", "--property=NeedDaemonReload", "--value", *loaded
    )
    metrics = MetricsTimer(values["metrics_directory"], Path(values["metrics_record"]), systemctl_strictly)
    links = RunLinks(values["paths"])
    run_id = links.run_of([unit for unit in loaded if unit not in departed])
    needs_links = bool(run_id) and not links.all_point_to(run_id)
    needs_timer = not metrics.is_fulfilled() or (needs_reload and bool(metrics.directory))
    if problem := metrics.problem():
        raise ValueError(problem)
    if not check_mode:
        if departed:
            systemctl_strictly("stop", *departed)
            systemctl("--no-reload", "disable", *departed)
            systemctl("reset-failed", *departed)  # systemd complains about others, which it has forgotten
        if needs_links:
            links.point_to(run_id)
        # Stop a timer whose unit file is gone before systemd notices that.
        if needs_timer and not metrics.directory:
            metrics.apply()
        if needs_reload:
            systemctl_strictly("daemon-reload")
        if needs_timer and metrics.directory:
            metrics.apply()
    changed = bool(departed or needs_reload or needs_timer or needs_links)
    return {"changed": changed, "departed": departed}


def look_at_units(values: Mapping[str, Any], _: Callable[[str], None]) -> dict[str, Any]:
    """Return {"up_to_date": whether `reload_units` has nothing to do}, for the part `units` of `host_facts`.

    `values` are the arguments of this part; nothing is changed. Raises OSError and ValueError.
    """
    return {"up_to_date": not reload_units(values, check_mode=True)["changed"]}
