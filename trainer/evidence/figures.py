"""The figures of a run, for programs and, line by line, for people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from trainer.evidence import convergence
from trainer.evidence.check import counted
from trainer.evidence.run import Run, TaskRecords

_WORKERS_SHOWN = 8


def figures_of(run: Run) -> dict[str, Any]:
    """Return the figures: `seconds` is how long the busiest worker trained, rates are over all workers.

    `replication` is None for a program of one's own. Bytes are None where systemd did not count them.
    """
    windows = [window for worker in run.workers for window in worker.windows]
    seconds = max((_seconds(worker) for worker in run.workers), default=0.0)
    examples = sum(window.examples for window in windows)
    first, last = convergence.smoothed_loss(run)
    told = run.contributions
    steps = {worker.name: told.get(worker.name, worker.local_steps) for worker in run.workers}
    total = sum(steps.values())
    return {
        "model": run.model,
        "replication": None if run.program is not None else str(run.profile),
        "global_steps": run.global_steps,
        "last_step": run.last_step,
        "seconds": round(seconds, 3),
        "examples": examples,
        "examples_per_second": round(examples / seconds, 1) if seconds else None,
        "loss_first": None if math.isnan(first) else first,
        "loss_last": None if math.isnan(last) else last,
        "metrics": convergence.final_metrics(run),
        "workers": {
            worker.name: {
                "steps": steps[worker.name],
                "share": round(steps[worker.name] / total, 4) if total else 0.0,
                "restarts": worker.restarts,
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
            for name, ending in run.endings.of.items()
        },
    }


def figure_lines(figures: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield name and value of each figure that there is, in words."""
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
        yield f"test {name.replace('_', ' ')}", "not finite" if value is None else f"{value:.4f}"
    workers = figures["workers"]
    if len(workers) > _WORKERS_SHOWN:
        shares = [worker["share"] for worker in workers.values()]
        yield "workers", f"{len(workers)}, {min(shares):.2%} to {max(shares):.2%} of the steps each"
        return
    for name, worker in workers.items():
        restarts = f", started again {counted(worker['restarts'], 'time')}" if worker["restarts"] else ""
        yield name, f"{worker['share']:.1%} of the steps ({worker['steps']}){restarts}"


def _seconds(worker: TaskRecords) -> float:
    return sum(window.seconds for window in worker.windows if math.isfinite(window.seconds))
