"""Keeps systemd on one host in step with the plan: removed tasks, changed units, and metrics.

Units of another release than that of the present run find this run, too. The step examines what systemd has
loaded rather than what a deployment changed, and so finishes an interrupted one. It never starts or restarts
a task.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..host.task_units import parse_list, systemctl, systemctl_strictly, task_of
from ..metrics_timer import SERVICE, TIMER, MetricsTimer
from ..run_links import RunLinks
from ..step import Step

OPTIONS = {
    "tasks": {"type": "list", "elements": "dict", "required": True, "description": "Job and index each."},
    "metrics_directory": {"default": "", "description": "node_exporter's directory. Empty for none."},
    "metrics_record": {"type": "path", "required": True, "description": "File that has their directory."},
    "paths": {"type": "dict", "required": True, "description": "The fact `cluster_paths`."},
}

RETURN = r"""
stopped: {returned: always, type: list, description: Units of tasks that left the plan.}
"""

PATTERNS = ("psfleet-*@*.service", "psfleet.target", "psfleet-gpu-devices.service", TIMER, SERVICE)


def departed(loaded: Sequence[str], tasks: Sequence[tuple[str, int]]) -> list[str]:
    """Return the loaded units of tasks that are not among `tasks`."""
    return [unit for unit in loaded if task_of(unit) not in (None, *tasks)]


def run(step: Step) -> None:
    """Take the step."""
    tasks = [(str(task["job"]), int(task["index"])) for task in step.params["tasks"]]
    try:
        loaded = parse_list(systemctl_strictly("list-units", "--all", "--plain", "--no-legend", *PATTERNS))
        gone = departed(loaded, tasks)
        unread = bool(loaded) and "yes" in systemctl_strictly(
            "show", "--property=NeedDaemonReload", "--value", *loaded
        )
        metrics = MetricsTimer(
            step.params["metrics_directory"], Path(step.params["metrics_record"]), systemctl_strictly
        )
        links = RunLinks(step.params["paths"])
        run_id = links.run_of([unit for unit in loaded if unit not in gone])
        unled = bool(run_id) and not links.all_point_to(run_id)
        untimed = not metrics.is_fulfilled() or (unread and bool(metrics.directory))
        if problem := metrics.problem():
            step.fail_json(msg=problem)
        if not step.check_mode:
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
    except (OSError, ValueError) as error:
        step.fail_json(msg=str(error))
    step.exit_json(changed=bool(gone or unread or untimed or unled), stopped=gone)
