"""Checks that the model is worth having: its loss finite and falling, its metrics good on the test data."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from statistics import median
from typing import Any

from psfleet.evidence.answer import Findings, Good, check, listed
from psfleet.evidence.goals import Goal
from psfleet.evidence.recorded_run import Run, Window
from psfleet.evidence.settings import EvidenceSettings
from trainer.contract.records import Record

_TAIL = 0.1  # of the windows: the first tenth and the last are compared


@check
def loss_finite(findings: Findings, run: Run) -> Good:
    """No worker ever saw a loss that was no number, and the final metrics are numbers."""
    for worker in run.workers:
        bad = [
            window.after for window in worker.windows if window.loss is not None and not _is_finite(window)
        ]
        if bad:
            broken = f"{worker.name}: the loss was no finite number by global step {bad[0]}"
            findings.wrong.append(broken)
        if worker.ending is not None and worker.ending.text("class") == "diverged":
            findings.wrong.append(f"{worker.name} diverged: {worker.ending.text('reason')}")
    findings.wrong += [
        f"{name} is no finite number" for name, value in final_metrics(run).items() if value is None
    ]
    count = sum(window.loss is not None for window in run.windows)
    if not count:
        findings.lacking.append("no worker recorded a loss")
    return f"finite in all {count} windows of steps", {"windows": count}


@check
def loss_fell(findings: Findings, run: Run, settings: EvidenceSettings) -> Good:
    """The median loss of the run's last tenth is well below that of its first, or as low as it can get."""
    target = settings.target_loss_of(run.model) or 0.0
    first, last = smoothed_loss(run)
    went = f"from {first:.4g} to {last:.4g} (medians of the first and the last tenth)"
    if math.isnan(first) or math.isnan(last):
        findings.lacking.append("there are too few finite losses to compare")
    elif last > first * (1 - settings.minimum_loss_reduction) and last > target:
        expected = f"expected a fall by {settings.minimum_loss_reduction:.0%} or to {target:g}"
        findings.add(f"the loss went {went}, {expected}", certain=run.whole)
    medians = {"first": finite_or_none(first), "last": finite_or_none(last)}
    return went, {**medians, "target_loss": target}


@check
def model_converged(findings: Findings, run: Run, settings: EvidenceSettings) -> Good:
    """The final model, evaluated on the test data, reaches the goals of its kind.

    What was found by the process that took no part counts; `evaluated_apart` asks that there is one, and that
    it agrees with the chief.
    """
    evaluated, known = last_evaluation(run), settings.goals_of(run.model)
    metrics = metrics_of(evaluated)
    if known is None:
        findings.lacking.append(
            f"no goal is known for model {run.model!r}; training_evidence_goals can name one"
        )
    elif evaluated is None:
        findings.lacking.append("nobody evaluated the final model")
    else:
        step = evaluated.integer("global_step")
        final = run.last_step is not None and step >= run.last_step
        if not final:
            findings.lacking.append(f"the last evaluation is of global step {step}")
        compare(known.goals, metrics, findings, certain=final)
    evidence = {"model": run.model, "metrics": final_metrics(run)}
    return in_words(known.goals if known else (), metrics), evidence


def compare(
    goals: Sequence[Goal], metrics: Mapping[str, float], findings: Findings, *, certain: bool
) -> None:
    """Find the goals that were not evaluated, and those that were missed: `certain` of a final model."""
    for goal in goals:
        if goal.metric not in metrics:
            findings.lacking.append(f"{goal.metric} was not evaluated")
        elif metrics[goal.metric] not in goal.range:
            missed = f"{goal.metric} is {metrics[goal.metric]:.4f}, expected {goal}"
            if goal.missed_by(metrics):
                missed = f"{missed}: what only {', '.join(goal.missed_by(metrics))} knew was not found"
            findings.add(missed, certain=certain)


def in_words(goals: Sequence[Goal], metrics: Mapping[str, float]) -> str:
    """What was found for each goal, and what was expected."""
    return listed(
        f"{goal.metric} {metrics.get(goal.metric, math.nan):.4f}, expected {goal}" for goal in goals
    )


def losses_of(run: Run) -> list[tuple[int, float]]:
    """Return (global step after, mean loss) of all workers' windows that tell a loss, by global step."""
    told = [(window.after, window.loss_mean) for window in run.windows if window.loss_mean is not None]
    return sorted(told, key=itemgetter(0))


def smoothed_loss(run: Run) -> tuple[float, float]:
    """Return the median loss of the first and of the last tenth of all workers' windows, by global step.

    Both are nan where there are fewer than two windows, or where a loss was not finite.
    """
    losses = [loss for _, loss in losses_of(run)]
    if len(losses) < 2 or not all(math.isfinite(loss) for loss in losses):
        return math.nan, math.nan
    tail = max(1, round(len(losses) * _TAIL))
    return median(losses[:tail]), median(losses[-tail:])


def final_metrics(run: Run) -> dict[str, float | None]:
    """Return what was found in the final model; None for no finite number, empty where nobody looked."""
    return {name: finite_or_none(value) for name, value in metrics_of(last_evaluation(run)).items()}


def last_evaluation(run: Run) -> Record | None:
    """Return the evaluation of the final model: by who took no part, else by the chief.

    Of a program of one's own it is that of the highest global step.

    A program started again may have begun anew: of each task its last process counts. Metrics that were
    found at one global step, perhaps by several tasks, are taken together; of one metric the later counts.
    """
    if run.program is None:
        of_chief = run.chief.of("evaluated")
        apart = run.evaluation.evaluated if run.evaluation else None
        return apart or (of_chief[-1] if of_chief else None)
    last_lives = [task.processes[-1] for task in run.all_tasks if task.processes]
    found = [record for life in last_lives for record in life.records if record.event == "evaluated"]
    newest = max((record.integer("global_step") for record in found), default=0)
    of_newest = [record for record in found if record.integer("global_step") == newest]
    if not of_newest:
        return None
    merged = {name: value for record in of_newest for name, value in _told_metrics(record).items()}
    return replace(of_newest[-1], fields={**of_newest[-1].fields, "metrics": merged})


def _is_finite(window: Window) -> bool:
    losses = (window.loss, window.loss_mean)
    return all(loss is not None and math.isfinite(loss) for loss in losses)


def _told_metrics(record: Record) -> Mapping[str, Any]:
    metrics = record.fields.get("metrics")
    return metrics if isinstance(metrics, Mapping) else {}


def metrics_of(evaluated: Record | None) -> dict[str, float]:
    """Return what an evaluation found; nan for what was no finite number."""
    told = _told_metrics(evaluated).items() if evaluated else ()
    return {str(name): math.nan if value is None else float(value) for name, value in told}


def finite_or_none(value: float) -> float | None:
    """Return a number that JSON can say."""
    return value if math.isfinite(value) else None
