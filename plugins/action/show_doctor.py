"""Show what was found on every host as a table for people, and fail where a check failed."""

from functools import partial
from typing import Any

from ansible.plugins.action import ActionBase

from psfleet.watch.console import show
from psfleet.watch.doctor_findings import Findings
from psfleet.watch.doctor_table import doctor_table


class ActionModule(ActionBase):
    """Argument: `answers`, host -> result of the action host_doctor ({} where there is none)."""

    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Print the table. With -v it says what was found by every check."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        found = Findings.of(variables["cluster_plan"], self._task.args["answers"])
        draw = partial(doctor_table, found)
        return result | show(draw, found.failure, variables["ansible_inventory_sources"])
