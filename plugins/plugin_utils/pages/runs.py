"""The page `runs`: all runs, on the controller and on the hosts, as a table."""

from functools import partial
from pathlib import Path
from typing import Any

from psfleet.watch.runs import RunList, runs_here
from psfleet.watch.runs_table import runs_table

from ..actions import HostAction
from ..asked_hosts import ask_hosts
from .tables import show_table


def show_page(action: HostAction, runs_directory: str) -> dict[str, Any]:
    """Ask all hosts of the play for their runs, and show the table of all runs, also those on the controller.

    Return `problems`, {host: why it did not answer, "" if it did}; also a failure if the table has one.
    """
    arguments = {"state": "listed", "paths": action.variables["cluster_paths"]}
    hosts = action.variables["ansible_play_hosts_all"]
    answers = ask_hosts(action, "host_runs", dict.fromkeys(hosts, arguments))
    runs = RunList.of(runs_here(Path(runs_directory)), answers)
    return show_table(action, partial(runs_table, runs), runs.failure, answers)
