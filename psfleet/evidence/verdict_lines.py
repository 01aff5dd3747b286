"""A verdict and its figures in words, line by line, for a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal

from psfleet.evidence.answer import counted, listed
from psfleet.evidence.held_back import held_back_in_words
from psfleet.evidence.lost_workers import LEFT, NOT_THERE, TOO_LATE
from psfleet.evidence.saved_models import model_lines
from psfleet.evidence.settings import EvidenceSettings
from psfleet.evidence.verdict import Verdict
from psfleet.inventory.problems import short_path
from trainer.contract.progress import printable

_WORKERS_SHOWN = 8
_RESTORES_SHOWN = 5
Kind = Literal["headline", "ok", "failed", "unknown", "open", "figure"]
_MARKS: dict[bool | None, tuple[str, Kind]] = {
    True: ("ok", "ok"),
    False: ("FAILED", "failed"),
    None: ("unknown", "unknown"),
}


def as_lines(verdict: Verdict, folder: Path, columns: int = 0) -> Iterator[tuple[str, Kind]]:
    """Yield (line, kind) of the report on a verdict; the kind says in which colour the line can be shown.

    `folder` is the run's folder. A line that is wider than `columns` (0: any width) continues in the next
    line, between words. If no task of a run took a step, only the headline and the reasons are shown. Texts
    from the folder, such as names and reasons, are escaped so that they cannot steer the terminal.
    """
    width = max(len(check.check) for check in verdict.checks)
    hanging = " " * (width + 12 if columns >= 2 * (width + 12) else 4)
    for line, kind in _lines(verdict, folder, width):
        text = printable(line)
        parts = [text] if len(text) <= (columns or len(text)) else _folded(text, columns, hanging)
        yield from ((part, kind) for part in parts)


def _folded(text: str, columns: int, hanging: str) -> list[str]:
    """Return the text in lines of at most `columns`, broken between words.

    A longer word, such as a path, stays in one piece, so that people can copy it. If the text begins with a
    space, the lines after the first begin with `hanging`.
    """
    return wrap(
        text,
        columns,
        subsequent_indent=hanging if text.startswith(" ") else "",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _lines(verdict: Verdict, folder: Path, width: int) -> Iterator[tuple[str, Kind]]:
    yield f"{verdict.headline} (run {verdict.run_id})", "headline"
    yield "", "figure"
    if verdict.reasons:
        yield from ((f"  {line}", "failed") for reason in verdict.reasons for line in reason.splitlines())
        yield "", "figure"
        yield f"  run folder  {short_path(folder)}", "figure"
        return
    for check in verdict.checks:
        mark, kind = _MARKS[check.ok]
        yield f"  {mark:<8}{check.check.replace('_', ' '):<{width}}  {check.detail}", kind
    if verdict.not_shown:
        yield "", "figure"
    for sentence in verdict.not_shown:
        yield f"  {sentence}", "open"
    yield "", "figure"
    thresholds = [("asked otherwise", own)] if (own := _own_thresholds(verdict.settings)) else []
    for name, value in [*figure_lines(verdict.figures), *thresholds, ("run folder", short_path(folder))]:
        yield f"  {name:<{width + 8}}  {value}", "figure"
    # A packed run is no folder, and contains no model.
    models = (
        model_lines(folder, short_path(folder), verdict.figures["global_steps"]) if folder.is_dir() else ()
    )
    for line, is_good in models:
        yield f"  {'model':<{width + 8}}  {line}", "figure" if is_good else "failed"


def _own_thresholds(settings: EvidenceSettings) -> str:
    """Return the thresholds that differ from the defaults, in words; "" if none does.

    The reader may not have chosen them. Example: "minimum_share 0.1 (usually 0.2), goals"
    """
    usual = EvidenceSettings().as_dict()
    return ", ".join(
        name if isinstance(value, dict | list) else f"{name} {value} (usually {usual[name]})"
        for name, value in settings.as_dict().items()
        if value != usual[name]
    )


def figure_lines(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (name, value in words) for each known figure, in the order of the report.

    Yield nothing for a program that recorded no steps. `figures` is the result of `figures_of`. For many
    tasks, ranges are yielded in place of a line for each.
    """
    steps, last_step = figures["global_steps"], figures["last_step"]
    if not steps and figures["replication"] is None:
        return  # a program that recorded no steps
    expected = "" if last_step in (None, steps) else f", expected {last_step}"
    batches = figures["batches_in_a_step"] or 1
    yield "global steps", f"{steps}{expected}" + (f", {batches} batches in a gradient" if batches > 1 else "")
    if end := figures["early_end"]:
        yield (
            "ended early",
            f"{end['condition']} was met at global step {end['global_step']}: {end['value']:.6g}",
        )
    yield "seconds", f"{figures['seconds']:.1f}"
    yield from _fault_lines(figures["faults"])
    yield from _lost_lines(figures["lost"])
    if figures["examples_per_second"]:
        yield "examples per second", f"{figures['examples_per_second']:,.0f}"
    if figures["loss_first"] is not None:
        yield "training loss", f"{figures['loss_first']:.4g} -> {figures['loss_last']:.4g}"
    for name, value in figures["metrics"].items():
        yield f"test {name.replace('_', ' ')}", _metric(value)
    stale = figures["staleness"]
    if stale is not None:
        own = stale["own_steps_behind"]
        too = f"; {counted(own, 'gradient')} missed their worker's own last step, too" if own else ""
        late = (figures["replication"] or "").startswith("sync") and stale["maximum"]
        late_words = "; such a gradient comes too late and is dropped" if late else ""
        words = f"{stale['mean']:.2f} global steps on average, at most {stale['maximum']}"
        yield "staleness", f"{words}{too}{late_words}"
    if len(figures["ps"]) > 1:
        shares = [ps["share"] for ps in figures["ps"].values()]
        yield "parameters", f"on {len(shares)} ps, {min(shares):.1%} to {max(shares):.1%} of the bytes each"
    yield from _worker_lines(figures["workers"], figures["stragglers"])
    if steps:
        yield from held_back_in_words(figures["held_back"])


def _fault_lines(faults: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (name, text) for the price of the faults: the goodput if it is known, then each restore.

    Of more than five restores, one line has only the sums. `faults` is the result of `price_of`.
    """
    if faults["goodput"] is not None:
        still = f", {faults['still_seconds']:.1f} s without training" if faults["still_seconds"] else ""
        yield "goodput", f"{faults['goodput']:.1%} of the workers' time{still}"
    restores = faults["restores"]
    if len(restores) > _RESTORES_SHOWN:
        yield "steps lost", f"{faults['steps_lost']}, in {len(restores)} restores"
    for restore in restores if len(restores) <= _RESTORES_SHOWN else []:
        why = f", because {listed(restore['damaged'])} could not be read" if restore["damaged"] else ""
        lost = counted(restore["steps_lost"], "step")
        yield "restored", f"global step {restore['global_step']}, {lost} lost{why}"
    alone = faults["ps_restores"]
    if len(alone) > _RESTORES_SHOWN:
        yield "restored alone", f"{len(alone)} times a ps its part"
    for restore in alone if len(alone) <= _RESTORES_SHOWN else []:
        lost = f"{counted(restore['steps_lost'], 'step')} lost there alone"
        yield (
            "restored alone",
            f"{restore['task']}, its part of global step {restore['checkpoint_step']}, {lost}",
        )


def _lost_lines(lost: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield (name, text) for each lost worker: how and when it was lost, and how many of its steps count.

    `lost` is the value of `lost` in the figures. The name is "not there" for a worker that left, joined too
    late or was not there, else "lost".
    """
    for worker in lost:
        step, at, count = worker["global_step"], worker["seconds"], worker["steps"]
        when = "" if step is None else f" after global step {step}"
        when += "" if at is None else f", {at:.1f} s after the start"
        held = "" if count is None else f"; {counted(count, 'step')} of it are in the model"
        name = "not there" if worker["how"] in {LEFT, TOO_LATE, NOT_THERE} else "lost"
        yield name, f"{worker['task']} {worker['how']}{when}{held}"


def _worker_lines(
    workers: Mapping[str, Mapping[str, Any]], stragglers: list[str]
) -> Iterator[tuple[str, str]]:
    """Yield (worker, text) with each worker's share and speed.

    For more than eight workers, yield instead the range of shares, the range of speeds, and the stragglers.
    `workers` and `stragglers` are values of the figures.
    """
    if len(workers) <= _WORKERS_SHOWN:
        for name, worker in workers.items():
            yield name, _worker_in_words(worker, straggles=name in stragglers)
        return
    shares = [worker["share"] for worker in workers.values()]
    yield "workers", f"{len(workers)}, {min(shares):.2%} to {max(shares):.2%} of the steps each"
    rates = [rate for worker in workers.values() if (rate := worker["steps_per_second"]) is not None]
    if rates:
        yield "steps per second", f"{_rate(min(rates))} to {_rate(max(rates))} each"
    slow = listed(f"{name} {workers[name]['slowdown']:.1f} times slower" for name in stragglers)
    if slow:
        yield "stragglers", slow


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 99.95 else f"{per_second:.3g}"


def _metric(value: float | None) -> str:
    if value is None:
        return "not finite"
    return f"{value:.0f}" if value.is_integer() else f"{value:.4f}"


def _worker_in_words(worker: Mapping[str, Any], *, straggles: bool) -> str:
    words = [f"{worker['share']:.1%} of the steps ({worker['steps']})"]
    if worker["steps_per_second"] is not None:
        words.append(f"{_rate(worker['steps_per_second'])} a second")
    if worker["waiting_seconds"]:
        words.append(f"waited {worker['waiting_seconds']:.1f} s for others")
    if straggles:
        words.append(f"{worker['slowdown']:.1f} times slower than the median")
    if worker["restarts"]:
        words.append(f"started again {counted(worker['restarts'], 'time')}")
    return ", ".join(words)
