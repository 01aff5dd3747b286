"""Show what every host said of its tasks as a table for people, and fail where no host said anything."""

from functools import partial
from typing import Any

from ansible.plugins.action import ActionBase

from psfleet.watch.console import show
from psfleet.watch.status import ClusterStatus
from psfleet.watch.status_table import status_table


class ActionModule(ActionBase):
    """Argument: `answers`, host -> result of host_status ({} where there is none)."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Print the table. With -v it says more of each task."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        found = ClusterStatus.of(variables["cluster_plan"], self._task.args["answers"])
        draw = partial(status_table, found)
        return result | show(draw, found.failure, variables["ansible_inventory_sources"])
