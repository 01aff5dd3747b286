"""Defines the pictures of the page: how to read each, and what is missing if it cannot be drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.figure import Figure

from psfleet.evidence.answer import counted
from psfleet.evidence.clocks import zero_in_words
from psfleet.evidence.early_end import early_end_of
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.verdict import Verdict
from psfleet.report import LOSS_PICTURE, charts, series, timeline
from psfleet.report.drawing import as_svg, save_png, style
from psfleet.report.number_format import number, shorten
from trainer.contract.progress import printable
from trainer.contract.stop_condition import condition_in

LOSS_PICTURE_DOTS_PER_INCH = 200
_METRICS_DRAWN = 4
_CLOCKS = "Clocks of two hosts are never compared."


@dataclass(frozen=True)
class Picture:
    """A picture of the page: a chart, or the reason why there is none.

    `name` is its id in the page. `svg` is the chart, and `caption` says how to read it. If `svg` is None,
    `missing` says why.
    """

    name: str
    title: str
    caption: str = ""
    svg: Markup | None = None
    missing: str = ""


def pictures(run: Run, verdict: Verdict) -> tuple[Picture, ...]:
    """Return the pictures of the page, in order, except the timeline.

    A picture that cannot be drawn is in it, too, with the reason.
    """
    named = series.notable_workers(run, verdict.figures)
    return (
        _loss(run, verdict, series.loss_curves(run, named)),
        *_evaluations(run, verdict),
        _rates(run, named),
        _shares(run, verdict),
        _staleness(run, verdict),
        _balance(verdict),
    )


def timeline_picture(run: Run, verdict: Verdict) -> Picture:
    """Return the timeline: the chart of what each task did, and when; without records, why there is none."""
    lanes, others = timeline.lanes(run, series.notable_workers(run, verdict.figures))
    caption = (
        "A bar is a process, from its first record to its last; a thin line is a time in which a process was"
        " lost and nothing heard of the task. Time is each host's own, since the task passed the barrier; of"
        f" one that tells of none, as a ps, since its start. {_CLOCKS}"
    )
    if others:
        caption += f" {number(others)} more tasks are not drawn."
    missing = "" if lanes else "No task left records of what happened."
    since = zero_in_words(timeline.tasks_with_records(run))
    return _picture(
        "timeline", "Course of the tasks", caption, missing, lambda: charts.timeline_chart(lanes, since)
    )


def write_loss_picture(run: Run, verdict: Verdict) -> None:
    """Write loss.png into the run's folder; if there are no finite losses, remove an existing loss.png.

    Raises OSError if the file cannot be written or removed.
    """
    curves = series.loss_curves(run, series.notable_workers(run, verdict.figures))
    path = run.folder / LOSS_PICTURE
    if not (curves.lines or curves.band):
        path.unlink(missing_ok=True)
        return
    with style():
        figure = _loss_figure(run, verdict, curves)
        figure.suptitle(shorten(printable(f"{run.run_id}: {verdict.verdict}"), 60))
        save_png(figure, path, LOSS_PICTURE_DOTS_PER_INCH)


def _loss(run: Run, verdict: Verdict, curves: series.Curves) -> Picture:
    notes = ["The mean loss of each window of a worker's steps."]
    if restored := series.restored_steps(run):
        steps = ", ".join(map(number, restored[: charts.MOST_RESTORED]))
        notes.append(f"Restored {counted(len(restored), 'time')}, to global step {steps}.")
    if broken := series.losses_not_finite(run):
        windows = counted(len(broken), "window")
        notes.append(f"{windows} with a loss that was not finite, the first by step {broken[0]:,}.")
    missing = "" if curves.lines or curves.band else "No worker recorded a finite loss."
    caption = " ".join([*notes, *_band_note(curves)])
    return _picture("loss", "Loss", caption, missing, lambda: _loss_figure(run, verdict, curves))


def _loss_figure(run: Run, verdict: Verdict, curves: series.Curves) -> Figure:
    targets = [answer.evidence.get("target_loss") for answer in verdict.checks]
    known = [float(target) for target in targets if isinstance(target, int | float)]
    restored, not_finite = series.restored_steps(run), series.losses_not_finite(run)
    return charts.loss_chart(curves, restored, not_finite, next(iter(known), None))


def _evaluations(run: Run, verdict: Verdict) -> tuple[Picture, ...]:
    """Return (picture of the evaluations during a run,), or () for a run that was to have none.

    A run that asked for evaluations and has none gets a picture with the reason. At most four metrics are
    drawn: those that end the run, those with a goal, then by name.
    """
    lines, condition = series.evaluations(run), condition_in(run.training)
    if not (lines or run.training.get("evaluate_every_steps")):
        return ()
    ends = {condition.metric: condition.bound} if condition else {}
    goals = {
        goal.metric: [bound for bound in (goal.range.minimum, goal.range.maximum) if bound is not None]
        for goal in verdict.settings.goals_of(run.card, verdict.figures["metrics"])
    }
    first = [name for name in (*ends, *goals) if name in lines]
    drawn = [lines[name] for name in dict.fromkeys([*first, *sorted(lines)])][:_METRICS_DRAWN]
    notes = [f"What {run.evaluator.name} found on the test examples, in the checkpoints of these steps."]
    notes += [f"The run ended early: {end}."] if (end := early_end_of(run)) else []
    missing = "" if drawn else "The run recorded no evaluation before its end."
    return (
        _picture(
            "evaluations",
            "Evaluations during the run",
            " ".join(notes),
            missing,
            lambda: charts.evaluation_chart(drawn, goals, ends),
        ),
    )


def _rates(run: Run, named: Sequence[str]) -> Picture:
    curves, since = series.rate_curves(run, named), zero_in_words(run.with_lost)
    own = f"Each worker's time is its host's own since {since}. {_CLOCKS}"
    missing = "" if curves.lines or curves.band else "No worker recorded how long its steps took."
    caption = " ".join([own, *_band_note(curves)])
    return _picture("rates", "Speed", caption, missing, lambda: charts.rate_chart(curves, since))


def _shares(run: Run, verdict: Verdict) -> Picture:
    shares, least = series.shares(verdict.figures), verdict.settings.minimum_share
    source = "as the parameter servers counted them" if run.contributions else "by the workers' own records"
    caption = f"Each worker's part of all gradients, {source}."
    missing = "" if shares else "The run did not record how many steps each worker took."
    title = "Share of each worker"
    return _picture("shares", title, caption, missing, lambda: charts.share_chart(shares, least))


def _staleness(run: Run, verdict: Verdict) -> Picture:
    buckets = series.staleness_buckets(verdict.figures)
    staleness = verdict.figures["staleness"] or {}
    mean, maximum = number(staleness.get("mean")), number(staleness.get("maximum"))
    words = f"On average {mean} global steps of others, at most {maximum}."
    missing = ""
    if run.program is not None and not staleness:
        missing = "A user's program does not know the staleness of its gradients."
    elif not buckets:
        missing = f"The run did not record how staleness was distributed.{f' {words}' if staleness else ''}"
    title = "Staleness of gradients"
    return _picture("staleness", title, words, missing, lambda: charts.staleness_chart(buckets))


def _balance(verdict: Verdict) -> Picture:
    balance = verdict.figures["ps"]
    missing = "" if balance else "The run did not record which variables each parameter server held."
    caption = "The share of the saved variables on each parameter server."
    if len(balance) > charts.MOST_BARS:
        caption += f" The first {charts.MOST_BARS} of {len(balance)} parameter servers are drawn."
    return _picture("balance", "Parameter servers", caption, missing, lambda: charts.balance_chart(balance))


def _picture(name: str, title: str, caption: str, missing: str, draw: Callable[[], Figure]) -> Picture:
    if missing:
        return Picture(name, title, missing=missing)
    with style():
        return Picture(name, title, caption, as_svg(draw(), name, f"{title}. {caption}"))


def _band_note(curves: series.Curves) -> list[str]:
    if curves.band is None:
        return []
    note = f"The median and the range of {curves.workers} workers."
    named = ", ".join(line.name for line in curves.lines)
    return [f"{note} Drawn separately: {named}." if named else note]
