"""The figures of a run, for programs and, line by line, for people."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from psfleet.evidence import convergence, speed
from psfleet.evidence.answer import counted, listed
from psfleet.evidence.recorded_run import Run

_WORKERS_SHOWN = 8


def figures_of(run: Run) -> dict[str, Any]:
    """Return the figures: `seconds` is how long the busiest worker trained, rates are over all workers.

    `replication` is None for a program of one's own. Bytes are None where systemd did not count them. What
    the speed and the staleness figures mean stands in speed.py.
    """
    seconds = max((speed.seconds_of(worker) for worker in run.workers), default=0.0)
    examples = sum(speed.applied_examples(run, worker) for worker in run.workers)
    first, last = convergence.smoothed_loss(run)
    told = run.contributions
    steps = {worker.name: told.get(worker.name, worker.local_steps) for worker in run.workers}
    total = sum(steps.values())
    speeds = speed.speeds_of(run)
    return {
        "model": run.model,
        "replication": None if run.program is not None else str(run.rules),
        "global_steps": run.global_steps,
        "last_step": run.last_step,
        "seconds": round(seconds, 3),
        "examples": examples,
        "examples_per_second": round(examples / seconds, 1) if seconds else None,
        "loss_first": None if math.isnan(first) else first,
        "loss_last": None if math.isnan(last) else last,
        "metrics": convergence.final_metrics(run),
        "staleness": speed.staleness_of(run),
        "stragglers": speed.stragglers_in(speeds),
        "ps": speed.ps_of(run),
        "workers": {
            worker.name: {
                "steps": steps[worker.name],
                "share": round(steps[worker.name] / total, 4) if total else 0.0,
                "restarts": worker.restarts,
                **speeds[worker.name],
            }
            for worker in run.workers
        },
        "tasks": {
            name: {
                "exit_code": ending.exit_code,
                "restarts": ending.restarts,
                "bytes_received": ending.received,
                "bytes_sent": ending.sent,
            }
            for name, ending in run.endings.items()
        },
    }


def figure_lines(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield name and value of each figure that there is, in words: not more lines for more tasks."""
    steps, asked = figures["global_steps"], figures["last_step"]
    if not steps and figures["replication"] is None:
        return  # a program that recorded no steps
    yield "global steps", f"{steps}" if asked in (None, steps) else f"{steps}, asked for {asked}"
    yield "seconds", f"{figures['seconds']:.1f}"
    if figures["examples_per_second"] is not None:
        yield "examples per second", f"{figures['examples_per_second']:,.0f}"
    if figures["loss_first"] is not None:
        yield "training loss", f"{figures['loss_first']:.4g} -> {figures['loss_last']:.4g}"
    for name, value in figures["metrics"].items():
        yield f"test {name.replace('_', ' ')}", _metric(value)
    stale = figures["staleness"]
    if stale is not None:
        yield "staleness", f"{stale['mean']:.2f} global steps on average, at most {stale['maximum']}"
    if len(figures["ps"]) > 1:
        shares = [ps["share"] for ps in figures["ps"].values()]
        yield "parameters", f"on {len(shares)} ps, {min(shares):.1%} to {max(shares):.1%} of the bytes each"
    yield from _worker_lines(figures["workers"], figures["stragglers"])


def _worker_lines(
    workers: Mapping[str, Mapping[str, Any]], stragglers: list[str]
) -> Iterator[tuple[str, str]]:
    """Each worker's share and speed; of many workers the range, and the slowest by name."""
    if len(workers) <= _WORKERS_SHOWN:
        for name, worker in workers.items():
            yield name, _worker_in_words(worker, straggles=name in stragglers)
        return
    shares = [worker["share"] for worker in workers.values()]
    yield "workers", f"{len(workers)}, {min(shares):.2%} to {max(shares):.2%} of the steps each"
    rates = [rate for worker in workers.values() if (rate := worker["steps_per_second"]) is not None]
    if rates:
        yield "steps per second", f"{min(rates):.3g} to {max(rates):.3g} each"
    slow = listed(f"{name} {workers[name]['slowdown']:.1f} times slower" for name in stragglers)
    if slow:
        yield "stragglers", slow


def _metric(value: float | None) -> str:
    if value is None:
        return "not finite"
    return f"{value:.0f}" if value.is_integer() else f"{value:.4f}"


def _worker_in_words(worker: Mapping[str, Any], *, straggles: bool) -> str:
    words = [f"{worker['share']:.1%} of the steps ({worker['steps']})"]
    if worker["steps_per_second"] is not None:
        words.append(f"{worker['steps_per_second']:.3g} a second")
    if worker["waiting_seconds"]:
        words.append(f"waited {worker['waiting_seconds']:.1f} s for others")
    if straggles:
        words.append(f"{worker['slowdown']:.1f} times slower than the median")
    if worker["restarts"]:
        words.append(f"started again {counted(worker['restarts'], 'time')}")
    return ", ".join(words)
