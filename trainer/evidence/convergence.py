"""Checks that the model is worth having: its loss finite and falling, its metrics good on the test data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from trainer.evidence.check import Check, Findings, listed
from trainer.evidence.run import Run, Window
from trainer.evidence.settings import EvidenceSettings
from trainer.records import Record

_TAIL = 0.1  # of the windows: the first tenth and the last are compared


@dataclass(frozen=True)
class Goal:
    """What a metric must reach: at most `tolerance` away from `target`, or at least `target` without one."""

    metric: str
    target: float
    tolerance: float | None = None

    def reached(self, value: float) -> bool:
        """Whether the value is good enough; never for nan."""
        if self.tolerance is None:
            return value >= self.target
        return abs(value - self.target) <= self.tolerance

    def __str__(self) -> str:
        """The goal in words."""
        around = "at least " if self.tolerance is None else ""
        within = "" if self.tolerance is None else f" +- {self.tolerance:g}"
        return f"{around}{self.target:g}{within}"


@dataclass(frozen=True)
class ModelGoals:
    """A model's loss that needs to fall no further, and what its metrics must reach."""

    loss: float
    goals: tuple[Goal, ...]


def goals_of(model: str, settings: EvidenceSettings) -> ModelGoals | None:
    """Return what this model must reach; None for a model that this program does not know."""
    known = {
        # The noise on y has a standard deviation of 0.33, so no line has a lower loss than 0.11.
        "linear": ModelGoals(
            0.2,
            (Goal("weight", 2.0, settings.weight_tolerance), Goal("bias", 10.0, settings.bias_tolerance)),
        ),
        "mnist_mlp": ModelGoals(0.35, (Goal("accuracy", settings.target_accuracy),)),
    }
    return known.get(model)


def loss_finite(run: Run) -> Check:
    """No worker ever saw a loss that was no number, and the final metrics are numbers."""
    findings = Findings(lacking=run.plan_lacking)
    count = 0
    for worker in run.workers:
        bad = [
            window
            for window in worker.windows
            if not (math.isfinite(window.loss) and math.isfinite(window.loss_mean))
        ]
        count += len(worker.windows)
        if bad:
            findings.wrong.append(
                f"{worker.name}: the loss was no finite number by global step {bad[0].after}"
            )
        if worker.ending is not None and worker.ending.text("class") == "diverged":
            findings.wrong.append(f"{worker.name} diverged: {worker.ending.text('reason')}")
    evaluated = _last_evaluation(run)
    values = _metrics(evaluated) if evaluated else {}
    findings.wrong += [
        f"{name} is no finite number" for name, value in values.items() if not math.isfinite(value)
    ]
    if not count:
        findings.lacking.append("no worker recorded a loss")
    return findings.conclude("loss_finite", f"finite in all {count} windows of steps", {"windows": count})


def loss_fell(run: Run, settings: EvidenceSettings) -> Check:
    """The median loss of the run's last tenth is well below that of its first, or as low as it can get."""
    findings = Findings(lacking=run.plan_lacking)
    goals = goals_of(run.model, settings)
    target = settings.target_loss if settings.target_loss is not None else goals.loss if goals else 0.0
    first, last = smoothed_loss(run)
    if math.isnan(first) or math.isnan(last):
        findings.lacking.append("there are too few finite losses to compare")
    elif last > first * (1 - settings.minimum_loss_reduction) and last > target:
        findings.add(
            f"the loss went from {first:.4g} to {last:.4g} (medians of the first and the last tenth), "
            f"expected a fall by {settings.minimum_loss_reduction:.0%} or to {target:g}",
            certain=all(worker.whole for worker in run.workers),
        )
    return findings.conclude(
        "loss_fell",
        f"from {first:.4g} to {last:.4g} (medians of the first and the last tenth)",
        {"first": _or_none(first), "last": _or_none(last), "target_loss": target},
    )


def model_converged(run: Run, settings: EvidenceSettings) -> Check:
    """The final model, as the chief evaluated it on the test data, reaches the goals of its kind."""
    findings = Findings(lacking=run.plan_lacking)
    evaluated, goals = _last_evaluation(run), goals_of(run.model, settings)
    metrics = _metrics(evaluated) if evaluated else {}
    if goals is None:
        findings.lacking.append(f"no goal is known for model {run.model!r}")
    elif evaluated is None:
        findings.lacking.append("the chief did not evaluate the final model")
    else:
        if run.final is None or evaluated.integer("global_step") < run.final.integer("last_step"):
            findings.lacking.append(
                f"the last evaluation is of global step {evaluated.integer('global_step')}"
            )
        for goal in goals.goals:
            if goal.metric not in metrics:
                findings.lacking.append(f"{goal.metric} was not evaluated")
            elif not goal.reached(metrics[goal.metric]):
                findings.wrong.append(f"{goal.metric} is {metrics[goal.metric]:.4f}, expected {goal}")
    good = (
        listed(
            f"{goal.metric} {metrics.get(goal.metric, math.nan):.4f}, expected {goal}" for goal in goals.goals
        )
        if goals
        else ""
    )
    return findings.conclude(
        "model_converged",
        good,
        {"model": run.model, "metrics": {name: _or_none(value) for name, value in metrics.items()}},
    )


def smoothed_loss(run: Run) -> tuple[float, float]:
    """Return the median loss of the first and of the last tenth of all workers' windows, by global step.

    Both are nan where there are fewer than two windows, or where a loss was not finite.
    """
    windows = [window for worker in run.workers for window in worker.windows]
    windows.sort(key=_by_global_step)
    losses = [window.loss_mean for window in windows]
    if len(losses) < 2 or not all(math.isfinite(loss) for loss in losses):
        return math.nan, math.nan
    tail = max(1, round(len(losses) * _TAIL))
    return median(losses[:tail]), median(losses[-tail:])


def final_metrics(run: Run) -> dict[str, float | None]:
    """Return what the chief evaluated last; None for what was no finite number, empty where nothing was."""
    evaluated = _last_evaluation(run)
    return {name: _or_none(value) for name, value in _metrics(evaluated).items()} if evaluated else {}


def _by_global_step(window: Window) -> int:
    return window.after


def _last_evaluation(run: Run) -> Record | None:
    evaluations = run.chief.of("evaluated")
    return evaluations[-1] if evaluations else None


def _metrics(evaluated: Record) -> dict[str, float]:
    metrics = evaluated.fields.get("metrics")
    values = metrics.items() if isinstance(metrics, Mapping) else ()
    return {str(name): math.nan if value is None else float(value) for name, value in values}


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
