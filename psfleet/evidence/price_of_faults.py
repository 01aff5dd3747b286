"""The price of a run's faults: steps lost, seconds without training, and goodput."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from psfleet.evidence.absences import absences
from psfleet.evidence.clocks import own_seconds
from psfleet.evidence.ps_restores import ps_restores, steps_of_parts_lost
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.task_records import TaskRecords, Window
from trainer.contract.records import Record


@dataclass(frozen=True)
class Restore:
    """One time that the chief set the variables: to a checkpoint, or to their first values (step 0).

    `global_step` is the step of that checkpoint. `steps_lost` is how far beyond it a worker had recorded
    steps: these are not in the model. `damaged` are the names of the newer checkpoints that were passed over
    because they could not be read.
    """

    global_step: int
    steps_lost: int = 0
    damaged: tuple[str, ...] = ()


def price_of(run: Run) -> dict[str, Any]:
    """Return the value of `faults` in the figures; a figure that the records do not show is None.

    - `steps_lost`: the sum over all restores; it does not contain those of `ps_restores`.
    - `restores`: the restores that lost steps or passed over a damaged checkpoint.
    - `ps_restores`: the restores of one ps alone. Their `steps_lost` are missing on that ps, not on the
      others.
    - `still_seconds`: the time without training between the first and the last step, saves included. It is
      the longest worker's time minus the most that any worker trained, since the chief may be lost before the
      end.
    - `goodput`: the part of all workers' time in which they took steps that are in the model. The time before
      a worker joined, or after it left, does not count.
    """
    restores, away = restores_in(run), absences(run)
    seconds = max(map(_seconds_of_training, run.workers), default=0.0)
    still = goodput = None
    if seconds > 0 and run.workers and not run.coordinated:
        saving = saving_seconds(run)
        all_wait = run.rules.once_per_step
        trained = [
            sum(map(_seconds, worker.windows)) - (saving if all_wait or worker is run.chief else 0.0)
            for worker in run.workers
        ]
        lost = sum(_lost_seconds(worker, restores) for worker in run.workers)
        steps = sum(window.steps for window in run.windows)
        lost += steps_of_parts_lost(run) * sum(trained) / max(steps, 1)
        still = round(max(seconds - max(trained), 0.0), 3)
        there = sum(
            _seconds_of_training(worker) if worker.name in away else seconds for worker in run.workers
        )
        goodput = round(min(max((sum(trained) - lost) / there, 0.0), 1.0), 4)
    return {
        "steps_lost": sum(restore.steps_lost for restore in restores),
        "still_seconds": still,
        "goodput": goodput,
        "restores": [asdict(restore) for restore in restores if restore.steps_lost or restore.damaged],
        "ps_restores": [restore.as_dict() for restore in ps_restores(run)],
    }


def saving_seconds(run: Run) -> float:
    """Return the sum of the seconds in which the chief took no steps because it saved."""
    return sum(_stopped_seconds(record) for record in run.chief.of("checkpointed"))


def restores_in(run: Run) -> list[Restore]:
    """Return a Restore for every `restored` and `initialised` of the chief, in order.

    The first one is usually the start of the run.
    """
    restores: list[Restore] = []
    damaged: list[str] = []
    reached = 0
    for record in run.chief.records:
        if record.event == "step":
            reached = max(reached, record.integer("global_step_after"))
        elif record.event == "checkpoint_damaged":
            damaged.append(record.text("path").rpartition("/")[2])
        elif record.event in {"restored", "initialised"}:
            step = record.integer("global_step")
            restores.append(Restore(step, max(reached - step, 0), tuple(damaged)))
            reached, damaged = step, []
    for worker in run.workers:
        for at, which in _returns(worker.windows, restores):
            restore = restores[which]
            lost = worker.windows[at - 1].after - restore.global_step
            restores[which] = replace(restore, steps_lost=max(restore.steps_lost, lost))
    return restores


def _returns(windows: Sequence[Window], restores: Sequence[Restore]) -> Iterator[tuple[int, int]]:
    """Yield (index of a window, index of a restore) for each time that a worker's global step went back.

    The restore is the one, after those already used, that set the highest step which the window can follow. A
    fall that no restore explains is left out.
    """
    following = 1  # the first one is the start of the run
    for place, (one, other) in enumerate(pairwise(windows), start=1):
        if other.before >= one.after:
            continue
        fitting = [n for n in range(following, len(restores)) if restores[n].global_step <= other.before]
        which = max(fitting, key=lambda n: restores[n].global_step, default=None)
        if which is not None:
            yield place, which
            following = which + 1


def _lost_seconds(worker: TaskRecords, restores: Sequence[Restore]) -> float:
    """Return the seconds that a worker spent on steps that a restore discarded; 0.0 for none."""
    seconds, begin = 0.0, 0
    for place, which in _returns(worker.windows, restores):
        step = restores[which].global_step
        for window in worker.windows[begin:place]:
            moved, beyond = window.after - window.before, window.after - max(window.before, step)
            if moved > 0 and beyond > 0:
                seconds += _seconds(window) * beyond / moved
        begin = place
    return seconds


def _seconds_of_training(worker: TaskRecords) -> float:
    """Return the seconds from the begin of a worker's first step to the end of its last, by its own clock.

    Times in which people had stopped it do not count. 0.0 without steps.
    """
    begin: float | None = None
    end = away = 0.0
    stopped_at: float | None = None
    for record, at in own_seconds(worker):
        if record.event == "finished" and record.text("reason") == "stopped":
            stopped_at = at
        elif record.event == "started" and stopped_at is not None:
            away += at - stopped_at
            stopped_at = None
        elif record.event == "step":
            begin = at - _seconds(Window.of(record)) if begin is None else begin
            end = at
    return 0.0 if begin is None else end - begin - away


def _seconds(window: Window) -> float:
    return max(window.seconds, 0.0) if math.isfinite(window.seconds) else 0.0


def _stopped_seconds(record: Record) -> float:
    seconds = record.number("stopped_seconds")
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0
