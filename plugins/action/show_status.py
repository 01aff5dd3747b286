"""Shows the state of every host's tasks as a table, and fails if no host answered."""

from functools import partial
from pathlib import Path
from typing import Any

from psfleet.run.folder import uncollected
from psfleet.watch.console import show
from psfleet.watch.status import ClusterStatus
from psfleet.watch.status_table import status_table

from ..plugin_utils.actions import ControllerAction


class ActionModule(ControllerAction):
    """Arguments: `answers`, host -> result of host_status ({} if there is none), and `runs_directory`."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        plan = self.variables["cluster_plan"]
        left = uncollected(Path(arguments["runs_directory"]), plan)
        found = ClusterStatus.of(plan, arguments["answers"], left)
        sources = self.variables["ansible_inventory_sources"]
        return show(partial(status_table, found), found.failure, sources)
