"""Checks that the model is worth having: its loss finite and fallen, its metrics good on the test data.

Losses are smoothed by medians over bins of windows, all workers' together, in the order of the global step. A
median is not moved by a few windows that stand out, and a plateau is still a plateau in it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from operator import attrgetter, itemgetter
from statistics import median

from psfleet.evidence.answer import Findings, Good, check, listed
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.settings import EvidenceSettings, Goal
from trainer.contract.records import Record

_TAIL = 0.1  # of the windows: the first tenth and the last are compared
# Chance has all of so many first windows above so many last ones in less than one run of a thousand.
_HEAD, _LEAST_TAIL = 5, 9
_LAST_PART = 1 / 3  # of the windows: where the loss must not rise
_BINS = 30  # at most; a slope by pairs grows with their square
_WINDOWS_OF_A_BIN = 4
# The last windows are asked for a level, not for a slope: fewer and steadier bins.
_PATIENCE_BINS = 10
_WINDOWS_OF_A_PATIENCE_BIN = 10
# In standard deviations: chance alone goes beyond it in one run of a thousand.
_SIGNIFICANT = 3.0
_FEWEST_OF_A_WORKER = 4  # windows, of which a median tells something
_LEAST_RISE = 1.1  # a rise by less than a tenth is no matter
# Losses below this part of the target are all the same: rounding errors of a model that fits exactly.
_OF_THE_TARGET = 0.1
_OF_THE_FIRST = 1e-6
MOST_LOSS = 1e30  # a float32 holds somewhat more, and sums of such losses are none


@dataclass(frozen=True)
class Trend:
    """How the loss moved in the last third: `factor` from its begin to its end by the Theil-Sen slope.

    `significance` is Kendall's tau in its own standard deviations: how far the order of the losses is from
    chance. Both are 0 and 1 where there are too few windows.
    """

    factor: float = 1.0
    significance: float = 0.0

    @property
    def rises(self) -> bool:
        """Whether it rose, beyond noise and by an amount that matters."""
        return self.factor >= _LEAST_RISE and self.significance >= _SIGNIFICANT


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
            findings.wrong.append(f"{worker.name} diverged: {worker.ending.text('reason')}")
    metrics = metrics_of(last_evaluation(run))
    findings.wrong += [f"{name} is no finite number" for name in metrics if not math.isfinite(metrics[name])]
    count = sum(window.loss is not None for window in run.windows)
    if not count:
        findings.lacking.append("no worker recorded a loss")
    return f"finite in all {count} windows of steps", {"windows": count}


@check
def loss_fell(findings: Findings, run: Run, settings: EvidenceSettings) -> Good:
    """The median loss of the run's last tenth is well below what it began with, or at its target."""
    target = settings.target_loss_of(run.model)
    first, last = smoothed_loss(run)
    losses = [loss for _, loss in losses_of(run)]
    went = f"from {first:.4g} to {last:.4g}"
    if math.isnan(first) or math.isnan(last):
        findings.lacking.append("there are too few finite losses to compare")
    elif target is not None and last <= target:
        if max(losses[:_HEAD]) <= target:
            at = f"the loss was at its target of {target:g} from the beginning"
            findings.lacking.append(f"{at}: nothing shows that anything was learned")
    elif not _has_fallen(first, last, settings):
        expected = f"expected a fall by {settings.minimum_loss_reduction:.0%}"
        expected += "" if target is None else f" or to {target:g}"
        asked = "training_evidence_minimum_loss_reduction and training_evidence_target_loss say what is asked"
        findings.add(f"the loss went {went}, {expected}; {asked}", certain=run.whole)
    return went, {"first": first, "last": last, "target_loss": target}


def _has_fallen(first: float, last: float, settings: EvidenceSettings) -> bool:
    """Whether a loss, which may be negative, fell by the part of its first size that is asked for."""
    least = settings.minimum_loss_reduction
    return first - last >= least * abs(first) and (last < first or not least)


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
    bins = _binned(of_last, _PATIENCE_BINS, _WINDOWS_OF_A_PATIENCE_BIN)
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
    if accuracy <= largest + _SIGNIFICANT * chance:
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


def losses_of(run: Run) -> list[tuple[int, float]]:
    """Return (global step after, mean loss) of all workers' windows that tell a loss, by global step."""
    told = [(window.after, window.loss_mean) for window in run.windows if window.loss_mean is not None]
    return sorted(told, key=itemgetter(0))


def smoothed_loss(run: Run) -> tuple[float, float]:
    """Return what the loss was at first, and the median of the last tenth of all workers' windows.

    At first it was the median of the first tenth, by global step. What has converged may rest: where a tenth
    is long, the first windows alone may be above it. Their least counts where it is more, and above every
    window of the last tenth, which chance seldom makes so.
    Both are nan where there are fewer than two windows, or where a loss was not finite.
    """
    losses = [loss for _, loss in losses_of(run)]
    if len(losses) < 2 or not all(math.isfinite(loss) for loss in losses):
        return math.nan, math.nan
    tenth = max(1, round(len(losses) * _TAIL))
    tail = losses[-tenth:]
    first, head = median(losses[:tenth]), min(losses[:_HEAD])
    if tenth >= _LEAST_TAIL and head > max(tail):
        first = max(first, head)
    return first, median(tail)


def trend_of(losses: Sequence[tuple[int, float]], target: float | None) -> Trend:
    """Return how finite losses, by global step, moved in their last third."""
    floor = _OF_THE_TARGET * target if target else _OF_THE_FIRST * abs(losses[0][1])
    # The least positive number keeps a loss of exactly 0 within the logarithm.
    floor = max(floor, math.ulp(0.0))
    last = losses[-max(round(len(losses) * _LAST_PART), 1) :]
    bins = _binned(last, _BINS, _WINDOWS_OF_A_BIN)
    points = [
        (median(step for step, _ in part), math.log(max(median(loss for _, loss in part), floor)))
        for part in bins
    ]
    pairs = [(one, other) for one, other in combinations(points, 2) if other[0] > one[0]]
    if not pairs:
        return Trend()
    slope = median((other[1] - one[1]) / (other[0] - one[0]) for one, other in pairs)
    rises = sum((other[1] > one[1]) - (other[1] < one[1]) for one, other in pairs)
    count = len(points)
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    span = points[-1][0] - points[0][0]
    return Trend(math.exp(min(slope * span, 700.0)), rises / deviation)


def _binned(
    losses: Sequence[tuple[int, float]], most: int, windows_of_a_bin: int
) -> list[Sequence[tuple[int, float]]]:
    """Cut into bins of equal counts, which never differ by more than one."""
    count = min(max(len(losses) // windows_of_a_bin, 1), most)
    edges = [round(number * len(losses) / count) for number in range(count + 1)]
    return [losses[start:end] for start, end in pairwise(edges)]


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
