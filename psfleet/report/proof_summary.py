"""Summarises in words what the two runs of prove.yml have shown."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from psfleet.inventory.proof import IN_WORDS
from trainer.contract.plan import ClusterPlan
from trainer.contract.progress import printable

Kind = Literal["proven", "not proven", "detail"]
_CHECKS_SHOWN = 5


@dataclass(frozen=True)
class ProofRun:
    """One run of prove.yml: its replication, its folder, and `verdict.json` ({} if it was not judged).

    `replication` is "async" or "sync".
    """

    replication: str
    folder: str
    verdict: Mapping[str, Any]

    @property
    def proven(self) -> bool:
        """Whether the verdict on the run is "proven"; False if it was not judged."""
        return self.verdict.get("verdict") == "proven"


def summary(plan: ClusterPlan, runs: Sequence[ProofRun]) -> Iterator[tuple[str, Kind]]:
    """Yield (line, its kind) for each line of the summary: each run, then what the runs show together.

    Lines of the kind "detail" explain. A run that is not proven is followed by its reasons. `runs` must not
    be empty.
    """
    workers, ps = len(plan.tasks_of("worker")), len(plan.tasks_of("ps"))
    done = [run for run in runs if run.proven]
    width = max(len(IN_WORDS[run.replication]) for run in runs)
    for run in runs:
        figures = run.verdict.get("figures", {})
        state = "PROVEN" if run.proven else "NOT PROVEN"
        of_run = f"{figures.get('global_steps', 0)} global steps in {figures.get('seconds', 0.0):.1f} s"
        line = f"{state:<10}  {IN_WORDS[run.replication]:<{width}}  {of_run}  {run.folder}"
        yield line, "proven" if run.proven else "not proven"
        if not run.proven:
            for why in _reasons(run):
                yield f"  - {why}", "detail"
    yield (
        f"Each of the {workers} workers knew one of {workers} parts of the model, and nothing of the others.",
        "detail",
    )
    if done:
        how = " and ".join(IN_WORDS[run.replication] for run in done)
        held = "the ps" if ps == 1 else f"the {ps} ps"
        yield f"Trained {how}, the model on {held} holds all {workers} parts: the workers share.", "proven"
    if len(done) < len(runs):
        how = " and ".join(IN_WORDS[run.replication] for run in runs if not run.proven)
        yield f"Trained {how}, it is not proven that the workers share what they learn.", "not proven"


def _reasons(run: ProofRun) -> Iterator[str]:
    """Yield why the run is not proven: the checks that are false; if there are none, the unknown checks.

    The first _CHECKS_SHOWN (5) come with their details, `model_converged` first; one line names the others. A
    last line says how many parts of the model were not found. Without a verdict, the only reason is that.
    """
    if not run.verdict:
        yield "it was not judged"
        return
    checks = run.verdict["checks"]
    wrong = [check for check in checks if check["ok"] is False]
    failing = wrong or [check for check in checks if check["ok"] is None]
    # The model comes first: that check names the workers that do not share.
    failing.sort(key=lambda check: check["check"] != "model_converged")
    for check in failing[:_CHECKS_SHOWN]:
        yield f"{check['check'].replace('_', ' ')}: {printable(check['detail'])}"
    if len(failing) > _CHECKS_SHOWN:
        names = ", ".join(check["check"].replace("_", " ") for check in failing[_CHECKS_SHOWN:])
        yield f"also {names}"
    metrics = run.verdict["figures"].get("metrics") or {}
    found, parts = metrics.get("parts_found"), metrics.get("parts")
    if found is not None and parts is not None and found < parts:
        worst = metrics.get("worst_worker")
        worst_named = "" if worst is None else f"; the worst is that of worker{worst:.0f}"
        yield f"the parts of {parts - found:.0f} of {parts:.0f} workers were not found{worst_named}"
