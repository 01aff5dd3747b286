"""The page `proof`: the results of the runs of prove.yml; it fails unless every run is proven."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psfleet.evidence.verdict import FILE_NAME
from psfleet.inventory.problems import short_path
from psfleet.report.proof_summary import ProofRun, summary
from psfleet.watch.terminal import escaping_display
from trainer.contract.json_files import read_object
from trainer.contract.plan import ClusterPlan

from ..actions import HostAction

display = escaping_display()

COLORS = {"proven": "green", "not proven": "red", "detail": None}


def show_page(action: HostAction, runs_directory: str, runs: Mapping[str, str]) -> dict[str, Any]:
    """Return `proven`, {replication: whether its run is proven}, and show the results if all are proven.

    Else the answer is also a failure, whose message has the results. `runs` is {replication: run id}.
    """
    plan = ClusterPlan.from_json(action.variables["cluster_plan"])
    directory = Path(runs_directory).resolve()
    folders = {replication: directory / run_id for replication, run_id in runs.items()}
    ended = [
        ProofRun(replication, short_path(folder), read_object(folder / FILE_NAME))
        for replication, folder in folders.items()
    ]
    lines = list(summary(plan, ended))
    proven = {"proven": {run.replication: run.proven for run in ended}}
    if all(run.proven for run in ended):
        for line, kind in lines:
            display.display(line, color=COLORS[kind])
        return proven
    return proven | action._failure("\n".join(line for line, _ in lines))
