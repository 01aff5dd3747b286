"""Shows all runs, on the controller and on the hosts, as a table, and fails if no host answered."""

from functools import partial
from pathlib import Path
from typing import Any

from psfleet.watch.console import show
from psfleet.watch.runs import RunList, runs_here
from psfleet.watch.runs_table import runs_table

from ..plugin_utils.actions import ControllerAction
from ..plugin_utils.asked_hosts import ask_hosts, problems


class ActionModule(ControllerAction):
    """Argument: `runs_directory`. All hosts of the play are queried at once, also those that do not answer.

    Returns `problems`, host -> why it gave no answer, "" if it did.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        asked = {"state": "listed", "paths": self.variables["cluster_paths"]}
        answers = ask_hosts(self, "host_runs", dict.fromkeys(self.variables["ansible_play_hosts_all"], asked))
        found = RunList.of(runs_here(Path(arguments["runs_directory"])), answers)
        shown = show(partial(runs_table, found), found.failure, self.variables["ansible_inventory_sources"])
        return {**shown, "problems": problems(answers)}
