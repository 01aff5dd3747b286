"""The page `status`: the state of every host's tasks, as a table."""

from functools import partial
from pathlib import Path
from typing import Any

from psfleet.run.folder import uncollected_runs
from psfleet.run.table_bytes import table_bytes_of_run, table_bytes_of_tasks
from psfleet.watch.status import ClusterStatus
from psfleet.watch.status_table import status_table
from trainer.contract.plan import ClusterPlan
from trainer.host.task_traces import RUN_ID

from ..actions import HostAction
from ..asked_hosts import ask_hosts
from .tables import show_table


def show_page(action: HostAction, runs_directory: str) -> dict[str, Any]:
    """Ask all hosts of the play for the state of their tasks, and show the table.

    Return `problems`, {host: why it did not answer, "" if it did}; also a failure if the table has one.
    """
    plan, tasks = action.variables["cluster_plan"], action.variables["cluster_tasks"]
    of_all = {
        "plan_hash": plan["hash"],
        "others": True,
        "details": True,
        "paths": action.variables["cluster_paths"],
    }
    arguments = {
        host: {**of_all, "tasks": tasks.get(host, [])} for host in action.variables["ansible_play_hosts_all"]
    }
    answers = ask_hosts(action, "trainer_tasks", arguments)
    tables = {"": table_bytes_of_tasks(ClusterPlan.from_json(plan), action.variables["cluster_settings"])}
    for run_id in {task["run_id"] for answer in answers.values() for task in answer.get("tasks", ())}:
        if RUN_ID.fullmatch(run_id):
            tables[run_id] = table_bytes_of_run(Path(runs_directory) / run_id)
    status = ClusterStatus.of(plan, answers, uncollected_runs(Path(runs_directory), plan), tables)
    return show_table(action, partial(status_table, status), status.failure, answers)
