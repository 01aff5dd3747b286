"""Show what every host said of its tasks as a table for people, and fail where no host said anything."""

from functools import partial
from typing import Any

from psfleet.watch.console import show
from psfleet.watch.status import ClusterStatus
from psfleet.watch.status_table import status_table

from ..plugin_utils.actions import ControllerAction


class ActionModule(ControllerAction):
    """Argument: `answers`, host -> result of host_status ({} where there is none)."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        found = ClusterStatus.of(self.variables["cluster_plan"], arguments["answers"])
        sources = self.variables["ansible_inventory_sources"]
        return show(partial(status_table, found), found.failure, sources)
