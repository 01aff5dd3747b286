"""Shows the state of every host's tasks as a table, and fails if no host answered."""

from functools import partial
from pathlib import Path
from typing import Any

from psfleet.run.folder import uncollected
from psfleet.watch.console import show
from psfleet.watch.status import ClusterStatus
from psfleet.watch.status_table import status_table

from ..plugin_utils.actions import ControllerAction
from ..plugin_utils.asked_hosts import ask_hosts, problems


class ActionModule(ControllerAction):
    """Argument: `runs_directory`. All hosts of the play are queried at once, also those that do not answer.

    Returns `problems`, host -> why it gave no answer, "" if it did.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        plan = self.variables["cluster_plan"]
        of_all = {
            "plan_hash": plan["hash"],
            "others": True,
            "details": True,
            "paths": self.variables["cluster_paths"],
        }
        tasks = self.variables["cluster_tasks"]
        hosts = self.variables["ansible_play_hosts_all"]
        answers = ask_hosts(
            self, "trainer_tasks", {host: {**of_all, "tasks": tasks.get(host, [])} for host in hosts}
        )
        left = uncollected(Path(arguments["runs_directory"]), plan)
        found = ClusterStatus.of(plan, answers, left)
        shown = show(partial(status_table, found), found.failure, self.variables["ansible_inventory_sources"])
        return {**shown, "problems": problems(answers)}
