"""Makes systemd on one host follow the plan: removed tasks, changed units, and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..host.task_units import parse_list, systemctl, systemctl_strictly, task_of
from .metrics_timer import SERVICE, TIMER, MetricsTimer
from .run_links import RunLinks

PATTERNS = ("psfleet-*@*.service", "psfleet.target", "psfleet-gpu-devices.service", TIMER, SERVICE)


def departed(loaded: Sequence[str], tasks: Sequence[tuple[str, int]]) -> list[str]:
    """Return those `loaded` units that are units of tasks, but not of `tasks`."""
    return [unit for unit in loaded if task_of(unit) not in (None, *tasks)]


def reloaded(values: Mapping[str, Any], *, check_mode: bool) -> dict[str, Any]:
    """Make systemd follow the plan; return whether something `changed`, and the `departed` units.

    This is the answer of the module `trainer_tasks` with `state: reloaded`. It examines what systemd has
    loaded, not what a deployment changed. So it also finishes a deployment that was interrupted. Raises
    OSError and ValueError.
    """
    tasks = [(str(task["job"]), int(task["index"])) for task in values["tasks"]]
    loaded = parse_list(systemctl_strictly("list-units", "--all", "--plain", "--no-legend", *PATTERNS))
    gone = departed(loaded, tasks)
    unread = bool(loaded) and "yes" in systemctl_strictly(
        "show", "--property=NeedDaemonReload", "--value", *loaded
    )
    metrics = MetricsTimer(values["metrics_directory"], Path(values["metrics_record"]), systemctl_strictly)
    links = RunLinks(values["paths"])
    run_id = links.run_of([unit for unit in loaded if unit not in gone])
    unled = bool(run_id) and not links.all_point_to(run_id)
    untimed = not metrics.is_fulfilled() or (unread and bool(metrics.directory))
    if problem := metrics.problem():
        raise ValueError(problem)
    if not check_mode:
        if gone:
            systemctl_strictly("stop", *gone)
            systemctl("--no-reload", "disable", *gone)
            systemctl("reset-failed", *gone)  # systemd complains about others, which it has forgotten
        if unled:
            links.point_to(run_id)
        # Stop a timer whose unit file is gone before systemd notices that.
        if untimed and not metrics.directory:
            metrics.apply()
        if unread:
            systemctl_strictly("daemon-reload")
        if untimed and metrics.directory:
            metrics.apply()
    return {"changed": bool(gone or unread or untimed or unled), "departed": gone}
