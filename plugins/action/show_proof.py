"""Say what the runs of the proof by partition have shown, and fail unless each is proven."""

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from psfleet.evidence.verdict import FILE_NAME
from psfleet.evidence.verdict_lines import shown
from psfleet.report.proof_summary import ProofRun, summary
from trainer.contract.json_files import read_object
from trainer.contract.plan import ClusterPlan

display = Display()

COLORS = {"proven": "green", "not proven": "red", "detail": None}


class ActionModule(ActionBase):
    """Arguments: `runs_directory`, `runs` (replication -> run id)."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `proven`, replication -> bool; fail, with the reasons, unless all are true."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        plan = ClusterPlan.from_json((task_vars or {})["cluster_plan"])
        runs_directory = Path(self._task.args["runs_directory"]).resolve()
        runs = [
            ProofRun(
                replication, shown(runs_directory / run_id), read_object(runs_directory / run_id / FILE_NAME)
            )
            for replication, run_id in self._task.args["runs"].items()
        ]
        lines = list(summary(plan, runs))
        result |= {"changed": False, "proven": {run.replication: run.proven for run in runs}}
        if all(run.proven for run in runs):
            for line, kind in lines:
                display.display(line, color=COLORS[kind])
            return result
        return result | {"failed": True, "msg": "\n".join(line for line, _ in lines)}
