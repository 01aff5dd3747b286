"""Shows what doctor.yml found on every host as a table, and fails if a check failed."""

from functools import partial
from typing import Any

from psfleet.watch.console import show
from psfleet.watch.doctor_findings import Findings
from psfleet.watch.doctor_table import doctor_table

from ..plugin_utils.actions import ControllerAction


class ActionModule(ControllerAction):
    """Argument: `answers`, host -> result of the action host_doctor ({} if there is none)."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        found = Findings.of(self.variables["cluster_plan"], arguments["answers"])
        sources = self.variables["ansible_inventory_sources"]
        return show(partial(doctor_table, found), found.failure, sources)
