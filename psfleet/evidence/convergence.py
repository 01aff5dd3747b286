"""Checks that the model is worth having: its loss finite and fallen, its metrics good on the test data."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from statistics import median

from psfleet.evidence.answer import Findings, Good, check, listed
from psfleet.evidence.loss_curve import (
    SIGNIFICANT,
    binned,
    change_of,
    losses_of,
    smoothed_loss,
    trend_of,
)
from psfleet.evidence.reasons import in_a_line
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.settings import EvidenceSettings, Goal
from trainer.contract.records import Record

_HEAD = 5  # windows, where a loss that is at its target is there from the beginning
# The last windows are asked for a level, not for a slope: fewer and steadier bins.
_PATIENCE_BINS = 10
_WINDOWS_OF_A_PATIENCE_BIN = 10
_FEWEST_OF_A_WORKER = 4  # windows, of which a median tells something
_LEAST_RISE = 0.1  # of the first loss: a smaller rise is no matter
MOST_LOSS = 1e30  # a float32 holds somewhat more, and sums of such losses are none


@check
def loss_finite(findings: Findings, run: Run) -> Good:
    """No worker ever saw a loss that was no number, and the final metrics are numbers."""
    for worker in run.workers:
        told = [(w.after, w.loss, w.loss_mean) for w in worker.windows if w.loss is not None]
        bad = [after for after, *losses in told if not all(map(_is_finite, losses))]
        if bad:
            beyond = f"no finite number, or beyond {MOST_LOSS:g},"
            findings.wrong.append(f"{worker.name}: the loss was {beyond} by global step {bad[0]}")
        if worker.ending is not None and worker.ending.text("class") == "diverged":
            findings.wrong.append(f"{worker.name} diverged: {in_a_line(worker.ending.text('reason'))}")
    metrics = metrics_of(last_evaluation(run))
    findings.wrong += [f"{name} is no finite number" for name in metrics if not math.isfinite(metrics[name])]
    count = sum(window.loss is not None for window in run.windows)
    if not count:
        findings.lacking.append("no worker recorded a loss")
    return f"finite in all {count} windows of steps", {"windows": count}


@check
def loss_fell(findings: Findings, run: Run, settings: EvidenceSettings) -> Good:
    """The loss fell beyond its noise (`change_of` has the tests), or is at its target; and to people's goals.

    Of a program nobody knows where its loss was to go: one that stands still contradicts nothing.
    """
    target = settings.target_loss_of(run.model)
    first, last = smoothed_loss(run)
    went = f"from {first:.4g} to {last:.4g}"
    evidence: dict[str, object] = {"first": first, "last": last, "target_loss": target}
    if math.isnan(first) or math.isnan(last):
        findings.lacking.append("there are too few finite losses to compare")
        return went, evidence
    change, reached = change_of(run), target is not None and last <= target
    evidence |= {"order": round(change.order, 2), "drop": round(change.drop, 2)}
    _ask_goals_of_people(run, settings, (first, last), findings)
    if reached and max(loss for _, loss in losses_of(run)[:_HEAD]) <= (target or 0.0):
        at = f"the loss was at its target of {target:g} from the beginning"
        findings.lacking.append(f"{at}: nothing shows that anything was learned")
    elif not reached and not change.fell:
        still = f"the loss went {went}, which is no fall beyond its noise"
        if change.rose and last - first >= _LEAST_RISE * abs(first):
            findings.add(f"the loss rose {went}, beyond its noise", certain=run.whole)
        elif not change.decidable:
            findings.lacking.append(f"{still}, of which {change.parts} windows tell too little")
        else:
            findings.add(still, certain=run.whole and run.program is None)
    return f"{went}, {'at its target' if reached and not change.fell else 'beyond its noise'}", evidence


def _ask_goals_of_people(
    run: Run, settings: EvidenceSettings, went: tuple[float, float], findings: Findings
) -> None:
    """Ask how far the loss fell, where people have set that: by a part of its first size, or to a target."""
    (first, last), least, target = went, settings.minimum_loss_reduction, settings.target_loss
    to_target = target is not None and last <= target
    fell_enough = first - last >= least * abs(first)
    expected = [f"by {least:.0%}"] if least else []
    expected += [] if target is None else [f"to {target:g}"]
    if expected and not to_target and not (least and fell_enough):
        asked = "training_evidence_minimum_loss_reduction and training_evidence_target_loss say what is asked"
        wanted = f"expected a fall {' or '.join(expected)}; {asked}"
        findings.add(f"the loss went from {first:.4g} to {last:.4g}, {wanted}", certain=run.whole)


@check
def loss_settled(findings: Findings, run: Run, settings: EvidenceSettings) -> Good:
    """The loss does not rise in the last third of the run, and stays at its target in the last windows.

    The target is `target_loss`, else the model's own; where there is none, the loss must only not rise. It
    has stayed there where every median of the last `loss_patience` of the windows is at most the target.
    """
    losses = losses_of(run)
    target = settings.target_loss_of(run.model)
    if len(losses) < 2 or not all(math.isfinite(loss) for _, loss in losses):
        findings.lacking.append("there are too few finite losses to judge")
        return "", {}
    trend = trend_of(losses, target)
    if trend.rises:
        findings.add(
            f"the loss rises: {trend.factor:.2f} times as high at the end of the last third of the run as at"
            " its begin, beyond noise",
            certain=run.whole,
        )
    of_last = losses[-max(round(len(losses) * settings.loss_patience), 1) :]
    bins = binned(of_last, _PATIENCE_BINS, _WINDOWS_OF_A_PATIENCE_BIN)
    levels = [median(loss for _, loss in part) for part in bins]
    highest, last = max(levels), f"the last {settings.loss_patience:.0%} of the windows"
    if target is not None and highest > target:
        findings.add(
            f"in {last} the loss was {highest:.4g} (highest median of {len(levels)}), "
            f"expected at most {target:g} all the time",
            certain=run.whole,
        )
    if target is not None and settings.loss_patience:
        _ask_each_worker(run, target, settings.loss_patience, findings)
    stays = "" if target is None else f", at most {target:g}"
    return f"{highest:.4g}{stays} in {last}, and not rising", {
        "target_loss": target,
        "highest_median": highest,
        "factor_of_last_third": round(trend.factor, 4),
        "significance": round(trend.significance, 2),
    }


@check
def model_converged(findings: Findings, run: Run, settings: EvidenceSettings) -> Good:
    """The final model, evaluated on the test data, reaches the goals of its kind.

    What was found by the process that took no part counts; `evaluated_apart` asks that there is one, and that
    it agrees with the chief.
    """
    evaluated, goals, good = last_evaluation(run), settings.goals_of(run.model), ""
    if not goals:
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
        good = compare(goals, metrics_of(evaluated), findings, certain=final)
        _ask_more_than_one_answer(evaluated, findings)
    return good, {"model": run.model, "metrics": metrics_of(evaluated)}


def _ask_more_than_one_answer(evaluated: Record, findings: Findings) -> None:
    """Ask of a classifier that it is right more often than one answer for all examples would be by chance."""
    found = metrics_of(evaluated)
    accuracy, largest = found.get("accuracy", 1.0), found.get("largest_class", 0.0)
    examples = evaluated.integer("examples") if "examples" in evaluated.fields else 0
    chance = math.sqrt(max(largest * (1 - largest), 0.0) / examples) if examples > 0 else 0.0
    if accuracy <= largest + SIGNIFICANT * chance:
        always = f"one answer for all test examples is right in {largest:.4f} of them"
        findings.lacking.append(f"{always}, the model in {accuracy:.4f}: not shown is that it learned")


def _ask_each_worker(run: Run, target: float, patience: float, findings: Findings) -> None:
    """Ask the last losses of each worker: of many workers, one that reads rubbish moves no median of all."""
    for worker in run.workers:
        windows = sorted(worker.windows, key=attrgetter("after"))
        losses = [window.loss_mean for window in windows if window.loss_mean is not None]
        last = losses[-max(round(len(losses) * patience), _FEWEST_OF_A_WORKER) :]
        if len(losses) >= 2 * _FEWEST_OF_A_WORKER and (own := median(last)) > target:
            told = f"the loss of {worker.name} alone was {own:.4g} in its last {len(last)} windows"
            findings.add(f"{told}, expected at most {target:g}", certain=run.whole)


def compare(goals: Sequence[Goal], metrics: Mapping[str, float], findings: Findings, certain: bool) -> str:
    """Find the goals that were not evaluated, and those that were missed: `certain` of a final model.

    Returns what was found for each goal, and what was expected.
    """
    for goal in goals:
        if goal.metric not in metrics:
            findings.lacking.append(f"{goal.metric} was not evaluated")
        elif metrics[goal.metric] not in goal.range:
            missed = f"{goal.metric} is {metrics[goal.metric]:.4f}, expected {goal}"
            if goal.missed_by(metrics):
                missed = f"{missed}: what only {', '.join(goal.missed_by(metrics))} knew was not found"
            findings.add(missed, certain=certain)
    return listed(
        f"{goal.metric} {metrics.get(goal.metric, math.nan):.4f}, expected {goal}" for goal in goals
    )


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
    merged = {name: value for record in of_newest for name, value in metrics_of(record).items()}
    return replace(of_newest[-1], fields={**of_newest[-1].fields, "metrics": merged})


def _is_finite(loss: float | None) -> bool:
    return loss is not None and abs(loss) <= MOST_LOSS


def metrics_of(evaluated: Record | None) -> dict[str, float]:
    """Return what an evaluation found; nan for what was no finite number."""
    told = evaluated.fields.get("metrics") if evaluated else None
    values = told.items() if isinstance(told, Mapping) else ()
    return {str(name): math.nan if value is None else float(value) for name, value in values}
