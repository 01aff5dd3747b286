"""Keeps systemd on one host in step with the plan: removed tasks, changed units, and metrics.

Units of another release than that of the present run find this run, too. It examines what systemd has
loaded rather than what a deployment changed, and so finishes an interrupted one. It never starts or restarts
a task.
"""

from __future__ import annotations

DOCUMENTATION = r"""
module: trainer_units
short_description: 'Keeps systemd on one host in step with the plan: removed tasks, changed units,
  and metrics'
description:
  - Units of another release than that of the present run find this run, too.
  - It examines what systemd has loaded rather than what a deployment changed, and so finishes
    an interrupted one.
  - It never starts or restarts a task.
author: psfleet (@psfleet)
options:
  tasks:
    description: Job and index each.
    type: list
    elements: dict
    required: true
  metrics_directory:
    description: node_exporter's directory. Empty for none.
    type: str
    default: ''
  metrics_record:
    description: File that has their directory.
    type: path
    required: true
  paths:
    description: The fact V(cluster_paths).
    type: dict
    required: true
attributes:
  check_mode:
    support: full
    description: It changes nothing, and says what it would change.
"""

EXAMPLES = r"""
- name: Have systemd read what a deployment has written
  psfleet.cluster.trainer_units:
    tasks: "{{ cluster_tasks[inventory_hostname] | psfleet.cluster.known_tasks }}"
    metrics_record: /etc/psfleet/metrics_directory
    paths: "{{ cluster_paths }}"
"""

RETURN = r"""
stopped:
  returned: always
  type: list
  description: Units of tasks that left the plan.
  elements: str
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.host.task_units import parse_list, systemctl, systemctl_strictly, task_of
from ..module_utils.module import made
from ..module_utils.tasks.metrics_timer import SERVICE, TIMER, MetricsTimer
from ..module_utils.tasks.run_links import RunLinks

ARGUMENTS: dict[str, Any] = {
    "tasks": {"type": "list", "elements": "dict", "required": True},
    "metrics_directory": {"default": ""},
    "metrics_record": {"type": "path", "required": True},
    "paths": {"type": "dict", "required": True},
}


PATTERNS = ("psfleet-*@*.service", "psfleet.target", "psfleet-gpu-devices.service", TIMER, SERVICE)


def departed(loaded: Sequence[str], tasks: Sequence[tuple[str, int]]) -> list[str]:
    """Return the loaded units of tasks that are not among `tasks`."""
    return [unit for unit in loaded if task_of(unit) not in (None, *tasks)]


def run(module: AnsibleModule) -> None:
    """Do it, and answer."""
    tasks = [(str(task["job"]), int(task["index"])) for task in module.params["tasks"]]
    try:
        loaded = parse_list(systemctl_strictly("list-units", "--all", "--plain", "--no-legend", *PATTERNS))
        gone = departed(loaded, tasks)
        unread = bool(loaded) and "yes" in systemctl_strictly(
            "show", "--property=NeedDaemonReload", "--value", *loaded
        )
        metrics = MetricsTimer(
            module.params["metrics_directory"], Path(module.params["metrics_record"]), systemctl_strictly
        )
        links = RunLinks(module.params["paths"])
        run_id = links.run_of([unit for unit in loaded if unit not in gone])
        unled = bool(run_id) and not links.all_point_to(run_id)
        untimed = not metrics.is_fulfilled() or (unread and bool(metrics.directory))
        if problem := metrics.problem():
            module.fail_json(msg=problem)
        if not module.check_mode:
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
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(gone or unread or untimed or unled), stopped=gone)


def main() -> None:
    """Run the module."""
    run(made(ARGUMENTS))


if __name__ == "__main__":
    main()
