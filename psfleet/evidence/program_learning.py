"""Checks that a user's program learned: its loss fell, or a goal that the user set was reached."""

import math
from dataclasses import replace

from psfleet.evidence import convergence
from psfleet.evidence.answer import Findings, Good
from psfleet.evidence.card import Card, Group, check
from psfleet.evidence.loss_curve import change_of, losses_of, smoothed_loss
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.task_records import TaskRecords

_FEWEST = 8  # windows of a worker; the loss of fewer is meaningless


@check(
    Card(
        Group.CONVERGENCE,
        holds=(
            "the metrics of the evaluation at the highest global step are in range; of each task, only the "
            "last process counts"
        ),
        fails="a metric is out of range",
        unknown="no task recorded an evaluation, or the evaluation lacks a metric of the goals",
        advice="The last evaluation misses training_evidence_goals: train longer, or ask for less.",
        models="",
        programs="with `training_evidence_goals`",
    )
)
def goals_reached(findings: Findings, run: Run, settings: EvidenceSettings) -> Good:
    """Check that the last evaluation that any task recorded reaches every goal of the user.

    Figures: `metrics`, {name: value}; {} without an evaluation.
    """
    evaluated = convergence.last_evaluation(run)
    if evaluated is None:
        findings.lacking.append("no task recorded an evaluation")
        return "", {}
    goals, metrics = tuple(settings.goals.values()), convergence.metrics_of(evaluated)
    good = convergence.check_goals(goals, metrics, findings, certain=True)
    good += f" (of global step {evaluated.integer('global_step')})"
    return good, {"metrics": metrics}


def level_losses(run: Run) -> dict[str, str]:
    """Return {clause: reason} for each worker whose own loss stays level while the loss of the others fell.

    A clause, such as "worker1 trained the model that learned", follows "it is not shown that". Such a worker
    may train another model than the others, or compute with old parameters. Left out is a worker whose last
    loss is nearer to the others' last loss than to their first: it may have started late, after the fall.
    Return {} for one worker, and for too few or infinite losses.
    """
    unknown = {}
    for worker in run.workers if len(run.workers) > 1 else ():
        alone, others = _restricted(run, worker, alone=True), _restricted(run, worker, alone=False)
        (begin, end), (first, last) = smoothed_loss(alone), smoothed_loss(others)
        enough = min(len(losses_of(alone)), len(losses_of(others))) >= _FEWEST and math.isfinite(
            begin + first
        )
        stays = enough and end > (first + last) / 2 and not change_of(alone).fell
        if stays and change_of(others).fell:
            why = f"its own loss went from {begin:.4g} to {end:.4g}, that of others {first:.4g} to {last:.4g}"
            unknown[f"{worker.name} trained the model that learned"] = why
    return unknown


def _restricted(run: Run, worker: TaskRecords, *, alone: bool) -> Run:
    """Return the run with this worker as its only task (`alone` is True), or without this worker."""
    return replace(run, expected=tuple(task for task in run.expected if (task.name == worker.name) is alone))
