"""The figures of a run: how fast each worker was, how long it waited, how stale its gradients were."""

import math
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from statistics import median
from typing import Any, Literal

from psfleet.evidence import convergence
from psfleet.evidence.early_end import early_end_of
from psfleet.evidence.held_back import held_back
from psfleet.evidence.loss_curve import smoothed_loss
from psfleet.evidence.lost_workers import lost_workers
from psfleet.evidence.price_of_faults import price_of
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.table_use import table_uses
from psfleet.evidence.task_records import TaskRecords, Window
from psfleet.evidence.time_spent import seconds_of
from trainer.contract.json_files import finite

# A worker that is this many times slower than the median one is a straggler.
STRAGGLER = 2.0
_OF_AN_ENDING = ("exit_code", "restarts", "bytes_received", "bytes_sent")


def figures_of(run: Run) -> dict[str, Any]:
    """Return the figures of a run, {name: value}, as docs/contracts.md describes them.

    `workers` leaves out a program's coordinator, which hands out steps and takes none.
    `seconds` is how long the busiest worker trained; rates are over all workers. `replication` is None for a
    user's program. Bytes are None if systemd did not count them. `staleness` is None if it is unknown;
    `Window.staleness` describes its `histogram`. `ps` has the number and the bytes of the saved variables on
    each ps, as the chief recorded them. `early_end` says what ended the run before its last step
    (early_end.py). For `faults`, see price_of_faults.py; for `held_back`, held_back.py; for `lost`,
    lost_workers.py.
    """
    seconds = max((seconds_of(worker) for worker in run.with_lost), default=0.0)
    examples = sum(_applied(run, worker, "examples") for worker in run.with_lost)
    first, last = smoothed_loss(run)
    counts = {**run.contributions, **run.applied}
    takers = [worker for worker in run.with_lost if worker.name in counts or not run.coordinated]
    steps = {worker.name: counts.get(worker.name, 0) for worker in takers}
    total = sum(steps.values())
    speeds, faults = speeds_of(run), price_of(run)
    return {
        "model": run.model,
        "replication": None if run.program is not None else str(run.rules),
        "global_steps": run.global_steps,
        "last_step": run.last_step,
        "early_end": end.as_dict() if (end := early_end_of(run)) else None,
        "seconds": round(seconds, 3),
        "examples": examples,
        "batches_in_a_step": _batches_in_a_step(run),
        "examples_per_second": round(examples / seconds, 1) if seconds else None,
        "loss_first": None if math.isnan(first) else first,
        "loss_last": None if math.isnan(last) else last,
        "metrics": finite(convergence.metrics_of(convergence.last_evaluation(run))),
        "staleness": _staleness(run),
        "stragglers": stragglers_in(speeds),
        "faults": faults,
        "held_back": held_back(run, speeds, faults).as_dict(),
        "parts": [_part(part) for part in run.parts],
        "lost": [worker.as_dict() for worker in lost_workers(run)],
        "ps": _ps(run),
        "tables": {name: use.as_dict() for name, use in table_uses(run).items()},
        "workers": {
            worker.name: {
                "steps": steps[worker.name],
                "share": round(steps[worker.name] / total, 6) if total else 0.0,
                "restarts": worker.restarts,
                **speeds[worker.name],
            }
            for worker in takers
        },
        "tasks": {
            name: {figure: getattr(ending, figure) for figure in _OF_AN_ENDING}
            for name, ending in run.endings.items()
        },
    }


def _batches_in_a_step(run: Run) -> int | None:
    """Return the number of batches in each step (`push_every`).

    Return None if the number differs between windows or is no integer, or if no step was recorded.
    """
    found = {window.batches / window.steps for window in run.windows if window.steps > 0}
    each = found.pop() if len(found) == 1 else math.nan
    return int(each) if each.is_integer() else None


def _part(part: Run) -> dict[str, Any]:
    numbers = {"ps": len(part.ps), "workers": len(part.workers)}
    return {**numbers, "first_step": part.first_step, "last_step": part.global_steps}


def speeds_of(run: Run) -> dict[str, dict[str, float | None]]:
    """Return {worker: {figure: value}} of all workers, also lost workers; an unknown value is None.

    The figures are `steps_per_second` and `examples_per_second` (of what went into the model),
    `waiting_seconds`, `staleness_mean`, and `slowdown`. `slowdown` is the median worker's steps per second
    divided by this worker's, so 2.0 is twice as slow. The time spent waiting for others does not count for
    it: if workers wait for each other, each takes as long as the slowest.
    """
    speeds: dict[str, dict[str, float | None]] = {}
    paces: dict[str, float | None] = {}
    for worker in run.with_lost:
        steps, seconds = sum(window.steps for window in worker.windows), seconds_of(worker)
        recorded = [window.waiting_seconds for window in worker.windows if window.waiting_seconds is not None]
        waiting = sum(recorded) if recorded else None
        paces[worker.name] = _ratio(steps, seconds - (waiting or 0.0)) or None
        speeds[worker.name] = {
            "steps_per_second": _ratio(_applied(run, worker, "steps"), seconds),
            "examples_per_second": _ratio(_applied(run, worker, "examples"), seconds),
            "waiting_seconds": waiting,
            "staleness_mean": _mean_staleness(worker.windows),
        }
    known = [pace for pace in paces.values() if pace is not None]
    for name, pace in paces.items():
        speeds[name]["slowdown"] = median(known) / pace if pace is not None else None
    return {name: {what: _rounded(value) for what, value in of.items()} for name, of in speeds.items()}


def stragglers_in(speeds: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    """Return the workers whose `slowdown` is at least STRAGGLER (2.0), slowest first; [] if there is none.

    `speeds` is the result of `speeds_of`.
    """
    slow = {name: speed["slowdown"] or 0.0 for name, speed in speeds.items()}
    return sorted((name for name in slow if slow[name] >= STRAGGLER), key=lambda name: -slow[name])


def _applied(run: Run, worker: TaskRecords, what: Literal["steps", "examples"]) -> int:
    """Return how many of a worker's own steps or examples (`what`) went into the model.

    These are all that it recorded. A synchronous step drops gradients that come too late: then the number is
    reduced by the share of its gradients that the chief did not count.
    """
    count = sum(int(getattr(window, what)) for window in worker.windows)
    if not run.rules.drops_late_gradients or not worker.local_steps:
        return count
    used = run.contributions.get(worker.name, worker.local_steps)
    return round(count * min(used / worker.local_steps, 1.0))


def _staleness(run: Run) -> dict[str, Any] | None:
    mean = _mean_staleness(run.windows)
    if mean is None:
        return None
    counts = [window.staleness or () for window in run.windows]
    maximum = max((window.staleness_max or 0 for window in run.windows), default=0)
    histogram = [sum(places) for places in zip_longest(*counts, fillvalue=0)]
    behind = sum(window.own_steps_behind for window in run.windows)
    return {"histogram": histogram, "mean": _rounded(mean), "maximum": maximum, "own_steps_behind": behind}


def _ps(run: Run) -> dict[str, dict[str, float]]:
    of_ps: dict[str, tuple[int, int]] = {}
    tables: dict[str, dict[str, float]] = {}
    for record in run.chief.of("initialised", "restored"):
        recorded = record.fields.get("ps_parameters")
        found: dict[str, tuple[int, int]] = {}
        for name, of in recorded.items() if isinstance(recorded, Mapping) else ():
            count, size = (of.get("variables"), of.get("bytes")) if isinstance(of, Mapping) else (None, None)
            if type(count) is int and type(size) is int:
                found[str(name)] = (count, size)
                of_tables = {each: of[each] for each in ("rows", "table_bytes") if type(of.get(each)) is int}
                tables[str(name)] = of_tables if len(of_tables) == 2 else {}
        of_ps = found or of_ps
    total = sum(size for _, size in of_ps.values())
    return {
        name: {
            "variables": count,
            "bytes": size,
            "share": round(size / total, 4) if total else 0.0,
            **tables[name],
        }
        for name, (count, size) in of_ps.items()
    }


def _mean_staleness(windows: Iterable[Window]) -> float | None:
    known = [(window.steps, window.staleness_mean) for window in windows if window.staleness_mean is not None]
    steps = sum(count for count, _ in known)
    return sum(count * mean for count, mean in known) / steps if steps else None


def _ratio(amount: float, by: float) -> float | None:
    return amount / by if by > 0 else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
