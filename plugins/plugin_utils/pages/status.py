"""The page `status`: the state of every host's tasks as a table."""

from functools import partial
from pathlib import Path
from typing import Any

from psfleet.run.folder import uncollected
from psfleet.watch.status import ClusterStatus
from psfleet.watch.status_table import status_table

from ..actions import HostAction
from ..asked_hosts import ask_hosts
from .tables import show_table


def show_page(action: HostAction, runs_directory: str) -> dict[str, Any]:
    """Query all hosts of the play at once, also those that do not answer; return as `show_table`."""
    plan, tasks = action.variables["cluster_plan"], action.variables["cluster_tasks"]
    of_all = {
        "plan_hash": plan["hash"],
        "others": True,
        "details": True,
        "paths": action.variables["cluster_paths"],
    }
    asked = {
        host: {**of_all, "tasks": tasks.get(host, [])} for host in action.variables["ansible_play_hosts_all"]
    }
    answers = ask_hosts(action, "trainer_tasks", asked)
    found = ClusterStatus.of(plan, answers, uncollected(Path(runs_directory), plan))
    return show_table(action, partial(status_table, found), found.failure, answers)
