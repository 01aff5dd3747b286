"""Shows the results of the runs of prove.yml, and fails unless each is proven."""

from pathlib import Path
from typing import Any

from ansible.utils.display import Display

from psfleet.evidence.verdict import FILE_NAME
from psfleet.inventory.problems import shown
from psfleet.report.proof_summary import ProofRun, summary
from trainer.contract.json_files import read_object
from trainer.contract.plan import ClusterPlan

from ..plugin_utils.actions import ControllerAction

display = Display()

COLORS = {"proven": "green", "not proven": "red", "detail": None}


class ActionModule(ControllerAction):
    """Arguments: `runs_directory`, `runs` (replication -> run id).

    Returns `proven`, replication -> bool; fails, with the reasons, unless all are true.
    """

    def _act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        plan = ClusterPlan.from_json(self.variables["cluster_plan"])
        runs_directory = Path(arguments["runs_directory"]).resolve()
        folders = {replication: runs_directory / run_id for replication, run_id in arguments["runs"].items()}
        runs = [
            ProofRun(replication, shown(folder), read_object(folder / FILE_NAME))
            for replication, folder in folders.items()
        ]
        lines = list(summary(plan, runs))
        proven = {"proven": {run.replication: run.proven for run in runs}}
        if all(run.proven for run in runs):
            for line, kind in lines:
                display.display(line, color=COLORS[kind])
            return proven
        return proven | self._failure("\n".join(line for line, _ in lines))
