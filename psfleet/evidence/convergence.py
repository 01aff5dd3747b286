"""Checks that the model is good: its loss is finite and fell, its metrics on the test data are good."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from statistics import median

from psfleet.evidence.answer import Findings, Good, listed
from psfleet.evidence.card import LOOK_AT_THE_LOSS, Card, Group, check
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

_HEAD = 5  # windows; a loss at its target in all of them was there from the start
# The last windows are judged by their level rather than a slope, so they need fewer and steadier bins.
_PATIENCE_BINS = 10
_WINDOWS_OF_A_PATIENCE_BIN = 10
_FEWEST_OF_A_WORKER = 4  # windows; a median of fewer is meaningless
_LEAST_RISE = 0.1  # as a share of the first loss; a smaller rise is unimportant
MOST_LOSS = 1e30  # a float32 holds slightly more, but sums of such losses would be infinite


@check(
    Card(
        Group.CONVERGENCE,
        holds="every loss is a finite number of at most 1e30, and every final metric is finite",
        fails="a loss or a metric is not, or a worker failed as `diverged`",
        unknown="no worker recorded a loss",
        advice="The training diverged. Lower trainer_learning_rate, and look for bad values in the data.",
        programs="if any worker recorded losses",
    )
)
def loss_finite(findings: Findings, run: Run) -> Good:
    """Check that all recorded losses and the final metrics are finite, and that no worker diverged.

    A loss above 1e30 counts as not finite. Figures: `windows`, the number of `step` records with a loss.
    """
    for worker in run.with_lost:
        recorded = [(w.after, w.loss, w.loss_mean) for w in worker.windows if w.loss is not None]
        bad = [after for after, *losses in recorded if not all(map(_is_finite, losses))]
        if bad:
            beyond = f"not finite, or above {MOST_LOSS:g},"
            findings.wrong.append(f"{worker.name}: the loss was {beyond} by global step {bad[0]}")
        if worker.ending is not None and worker.ending.text("class") == "diverged":
            findings.wrong.append(f"{worker.name} diverged: {in_a_line(worker.ending.text('reason'))}")
    metrics = metrics_of(last_evaluation(run))
    findings.wrong += [
        f"{name} is not a finite number" for name in metrics if not math.isfinite(metrics[name])
    ]
    count = sum(window.loss is not None for window in run.windows)
    if not count:
        findings.lacking.append("no worker recorded a loss")
    return f"finite in all {count} windows of steps", {"windows": count}


@check(
    Card(
        Group.CONVERGENCE,
        holds=(
            "the loss fell beyond its noise or ended at its target, and it met `minimum_loss_reduction` or "
            "`target_loss` if you set one"
        ),
        fails="the loss did not fall so far, or it rose beyond its noise",
        unknown="there are too few records of steps, or the loss was at its target from the beginning",
        advice=LOOK_AT_THE_LOSS,
        programs="if losses were recorded; if the loss only stayed level, `not_shown` says so",
    )
)
def loss_fell(findings: Findings, run: Run, settings: EvidenceSettings) -> Good:
    """Check that the loss fell beyond its noise or is at its target, and that it meets the user's goals.

    The loss of a user's program has no known target: if it stays level, that is missing evidence, no
    contradiction. Figures: `first` and `last` (`smoothed_loss`), `target_loss`; `order` and `drop` (`Change`)
    if all losses are finite.
    """
    target = settings.target_loss_of(run.card, metrics_of(last_evaluation(run)))
    first, last = smoothed_loss(run)
    went = f"from {first:.4g} to {last:.4g}"
    evidence: dict[str, object] = {"first": first, "last": last, "target_loss": target}
    if math.isnan(first) or math.isnan(last):
        findings.lacking.append("there are too few finite losses to compare")
        return went, evidence
    change, reached = change_of(run), target is not None and last <= target
    evidence |= {"order": round(change.order, 2), "drop": round(change.drop, 2)}
    _check_user_goals(run, settings, (first, last), findings)
    if reached and max(loss for _, loss in losses_of(run)[:_HEAD]) <= (target or 0.0):
        at = f"the loss was at its target of {target:g} from the beginning"
        findings.lacking.append(f"{at}: it is not shown that the model learned")
    elif not reached and not change.fell:
        still = f"the loss went {went}, so it did not fall beyond its noise"
        if change.rose and last - first >= _LEAST_RISE * abs(first):
            findings.add(f"the loss rose {went}, beyond its noise", certain=run.whole)
        elif not change.decidable:
            findings.lacking.append(f"{still}, and {change.parts} windows are too few to tell")
        else:
            findings.add(still, certain=run.whole and run.program is None)
    return f"{went}, {'at its target' if reached and not change.fell else 'beyond its noise'}", evidence


def _check_user_goals(
    run: Run, settings: EvidenceSettings, first_and_last: tuple[float, float], findings: Findings
) -> None:
    """Check that the loss fell by `minimum_loss_reduction` or to `target_loss`, whichever the user set.

    If both are set, one of them suffices; if none is, nothing is checked. The finding is a contradiction if
    the workers' records are complete, else missing evidence.
    """
    first, last = first_and_last
    least, target = settings.minimum_loss_reduction, settings.target_loss
    to_target = target is not None and last <= target
    fell_enough = first - last >= least * abs(first)
    expected = [f"by {least:.0%}"] if least else []
    expected += [] if target is None else [f"to {target:g}"]
    if expected and not to_target and not (least and fell_enough):
        variables = (
            "training_evidence_minimum_loss_reduction and training_evidence_target_loss set what is required"
        )
        wanted = f"expected a fall {' or '.join(expected)}; {variables}"
        findings.add(f"the loss went from {first:.4g} to {last:.4g}, {wanted}", certain=run.whole)


@check(
    Card(
        Group.CONVERGENCE,
        holds=(
            "the loss does not rise in the last third of the run; in the last `loss_patience` of the run it "
            "was at its target, for each worker alone, too"
        ),
        fails="the loss rises beyond its noise, or was above its target",
        unknown="there are fewer than two losses, or a loss is not finite",
        advice=LOOK_AT_THE_LOSS,
    )
)
def loss_settled(findings: Findings, run: Run, settings: EvidenceSettings) -> Good:
    """Check that the loss does not rise in the last third of the run, and is at its target at the end.

    The target is `target_loss`, else the model's own. Without a target, the loss only must not rise. The loss
    is at its target at the end if every median over the last `loss_patience` of the windows is at most the
    target.
    Figures: `target_loss`, `highest_median`, `factor_of_last_third` and `significance` (`Trend`); {} if there
    are fewer than two losses or one is not finite.
    """
    losses = losses_of(run)
    target = settings.target_loss_of(run.card, metrics_of(last_evaluation(run)))
    if len(losses) < 2 or not all(math.isfinite(loss) for _, loss in losses):
        findings.lacking.append("there are too few finite losses to judge")
        return "", {}
    trend = trend_of(losses, target)
    if trend.rises:
        findings.add(
            f"the loss rises: {trend.factor:.2f} times as high at the end of the last third of the run as at "
            "its beginning, beyond noise",
            certain=run.whole,
        )
    of_last = losses[-max(round(len(losses) * settings.loss_patience), 1) :]
    bins = binned(of_last, _PATIENCE_BINS, _WINDOWS_OF_A_PATIENCE_BIN)
    levels = [median(loss for _, loss in part) for part in bins]
    highest, last = max(levels), f"the last {settings.loss_patience:.0%} of the windows"
    if target is not None and highest > target:
        findings.add(
            f"in {last} the loss was {highest:.4g} (highest median of {len(levels)}), "
            f"expected at most {target:g} throughout",
            certain=run.whole,
        )
    if target is not None and settings.loss_patience:
        _check_each_worker(run, target, settings.loss_patience, findings)
    stays = "" if target is None else f", at most {target:g}"
    return f"{highest:.4g}{stays} in {last}, and not rising", {
        "target_loss": target,
        "highest_median": highest,
        "factor_of_last_third": round(trend.factor, 4),
        "significance": round(trend.significance, 2),
    }


@check(
    Card(
        Group.CONVERGENCE,
        holds="the final model reaches its goals on the test data, by the evaluator's metrics",
        fails="a metric misses its goal",
        unknown=(
            "no goal is known; nobody evaluated the final model; a classifier is no better than one constant "
            "answer"
        ),
        advice=LOOK_AT_THE_LOSS,
    )
)
def model_converged(findings: Findings, run: Run, settings: EvidenceSettings) -> Good:
    """Check that the final model reaches the goals of its model card and of the user on the test data.

    The evaluator's metrics count. The check `evaluated_apart` requires that they exist and agree with the
    chief's. Figures: `model`, its name; `metrics`, {name: value}, {} without an evaluation.
    """
    evaluated, good = last_evaluation(run), ""
    goals = settings.goals_of(run.card, metrics_of(evaluated))
    if not goals:
        findings.lacking.append(
            f"no goal is known for model {run.model!r}; training_evidence_goals can name one"
        )
    elif evaluated is None:
        findings.lacking.append("the final model was not evaluated")
    else:
        step = evaluated.integer("global_step")
        final = run.last_step is not None and step >= run.last_step
        if not final:
            findings.lacking.append(f"the last evaluation is of global step {step}")
        good = check_goals(goals, metrics_of(evaluated), findings, certain=final)
        _check_beats_one_answer(evaluated, findings)
    return good, {"model": run.model, "metrics": metrics_of(evaluated)}


def _check_beats_one_answer(evaluated: Record, findings: Findings) -> None:
    """Add missing evidence unless a classifier is right more often than one fixed answer, beyond chance.

    A fixed answer is right for the metric `largest_class` of the examples. Nothing is added without the
    metric `accuracy`.
    """
    found = metrics_of(evaluated)
    accuracy, largest = found.get("accuracy", 1.0), found.get("largest_class", 0.0)
    examples = evaluated.integer("examples") if "examples" in evaluated.fields else 0
    chance = math.sqrt(max(largest * (1 - largest), 0.0) / examples) if examples > 0 else 0.0
    if accuracy <= largest + SIGNIFICANT * chance:
        always = f"the same answer for all test examples is right for {largest:.4f} of them"
        findings.lacking.append(
            f"{always}, the model for {accuracy:.4f}: it is not shown that the model learned"
        )


def _check_each_worker(run: Run, target: float, patience: float, findings: Findings) -> None:
    """Add a finding for each worker whose median loss over its last windows is above `target`.

    Its last windows are the share `patience` of its own windows, and at least 4. A worker with fewer than 8
    windows is not judged. If one of many workers reads wrong data, the median of all workers hides it.
    """
    for worker in run.workers:
        windows = sorted(worker.windows, key=attrgetter("after"))
        losses = [window.loss_mean for window in windows if window.loss_mean is not None]
        last = losses[-max(round(len(losses) * patience), _FEWEST_OF_A_WORKER) :]
        if len(losses) >= 2 * _FEWEST_OF_A_WORKER and (own := median(last)) > target:
            level = f"the loss of {worker.name} alone was {own:.4g} in its last {len(last)} windows"
            findings.add(f"{level}, expected at most {target:g}", certain=run.whole)


def check_goals(
    goals: Sequence[Goal], metrics: Mapping[str, float], findings: Findings, certain: bool
) -> str:
    """Add each goal that was missed or not evaluated to the findings; return values and goals in words.

    `metrics` is {name: value}. `certain` is True if they are the metrics of the final model: then a missed
    goal is a contradiction, else missing evidence. A metric that was not evaluated is missing evidence
    always; in the text, its value is nan.
    Example: "accuracy 0.9612, expected at least 0.9"; the text has this form also for missed goals.
    """
    for goal in goals:
        if goal.metric not in metrics:
            findings.lacking.append(f"{goal.metric} was not evaluated")
        elif metrics[goal.metric] not in goal.range:
            missed = f"{goal.metric} is {metrics[goal.metric]:.4f}, expected {goal}"
            if goal.missed_by(metrics):
                missed = f"{missed}: what only {', '.join(goal.missed_by(metrics))} knew was not learned"
            findings.add(missed, certain=certain)
    return listed(
        f"{goal.metric} {metrics.get(goal.metric, math.nan):.4f}, expected {goal}" for goal in goals
    )


def last_evaluation(run: Run) -> Record | None:
    """Return the evaluation of the final model: the evaluator's, else the chief's last; None without any.

    For a user's program, it is the evaluation at the highest global step. A restarted program may have
    started over, so only the last process of each task counts. Metrics at one global step, perhaps of several
    tasks, are combined; if two have one name, the task that is later in the plan counts, and of one task the
    later record.
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


def metrics_of(evaluated: Record | None, field: str = "metrics") -> dict[str, float]:
    """Return {name: value} from the `field` of an evaluation, usually its metrics.

    A value that was not finite is nan. Return {} if `evaluated` is None, or if it lacks the field.
    """
    metrics = evaluated.fields.get(field) if evaluated else None
    values = metrics.items() if isinstance(metrics, Mapping) else ()
    return {str(name): math.nan if value is None else float(value) for name, value in values}
