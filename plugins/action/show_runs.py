"""Shows all runs, on the controller and on the hosts, as a table, and fails if no host answered."""

from functools import partial
from pathlib import Path
from typing import Any

from psfleet.watch.console import show
from psfleet.watch.runs import RunList, runs_here
from psfleet.watch.runs_table import runs_table

from ..plugin_utils.actions import ControllerAction


class ActionModule(ControllerAction):
    """Arguments: `answers`, host -> result of host_runs ({} if there is none), and `runs_directory`."""

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        found = RunList.of(runs_here(Path(arguments["runs_directory"])), arguments["answers"])
        return show(partial(runs_table, found), found.failure, self.variables["ansible_inventory_sources"])
