"""Whether a program of one's own learned: its loss fell, or a goal that people have set was reached."""

import math
from dataclasses import replace

from psfleet.evidence import convergence
from psfleet.evidence.answer import Findings, Good, check
from psfleet.evidence.loss_curve import change_of, losses_of, smoothed_loss
from psfleet.evidence.recorded_run import Run, TaskRecords
from psfleet.evidence.settings import EvidenceSettings

_FEWEST = 8  # windows of a worker, of which its loss tells something


@check
def goals_reached(findings: Findings, run: Run, settings: EvidenceSettings) -> Good:
    """The last evaluation that any task recorded reaches every goal that people have set."""
    evaluated = convergence.last_evaluation(run)
    if evaluated is None:
        findings.lacking.append("no task recorded an evaluation")
        return "", {}
    goals, metrics = tuple(settings.goals.values()), convergence.metrics_of(evaluated)
    good = convergence.compare(goals, metrics, findings, certain=True)
    good += f" (of global step {evaluated.integer('global_step')})"
    return good, {"metrics": metrics}


def losses_that_stay(run: Run) -> dict[str, str]:
    """Return of each worker whose own loss stays that it does, where that of the others fell.

    Such a worker may train another model than the others, or compute on an old one. One that comes late may
    find a loss that has fallen before: its own is then nearer to the end of the others than to their begin.
    """
    unknown = {}
    for worker in run.workers if len(run.workers) > 1 else ():
        alone, others = _of(run, worker, of=True), _of(run, worker, of=False)
        (begin, end), (first, last) = smoothed_loss(alone), smoothed_loss(others)
        enough = min(len(losses_of(alone)), len(losses_of(others))) >= _FEWEST and math.isfinite(
            begin + first
        )
        stays = enough and end > (first + last) / 2 and not change_of(alone).fell
        if stays and change_of(others).fell:
            why = f"its own loss went from {begin:.4g} to {end:.4g}, that of others {first:.4g} to {last:.4g}"
            unknown[f"{worker.name} trained the model that learned"] = why
    return unknown


def _of(run: Run, worker: TaskRecords, *, of: bool) -> Run:
    """Return the run of a worker alone, or that of all others."""
    return replace(run, expected=tuple(task for task in run.expected if (task.name == worker.name) is of))
