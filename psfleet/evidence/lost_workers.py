"""Workers that did not finish, where `training_run_success` lets a run end well without them.

The verdict is then about the workers that were there. What a lost worker recorded is judged nevertheless.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from psfleet.evidence.absences import has_left, joined_late
from psfleet.evidence.answer import listed
from psfleet.evidence.clocks import own_seconds
from psfleet.evidence.endings import HOST
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.steps_accounted import Tally
from psfleet.inventory.success_policy import needed_workers
from trainer.contract.records import GOOD_ENDINGS
from trainer.contract.run_tasks import SERVER, RunTask

LEFT, TOO_LATE, NOT_THERE = "left", "joined too late to take a step", "was not there"


@dataclass(frozen=True)
class LostWorker:
    """A worker that did not finish, or joined too late to take a step.

    `how` says in words that follow its name how it was lost, such as "was lost with host3". `global_step` is
    the last one at which the worker is known to have trained; by then the chief had trained for `seconds`.
    Both are None if unknown. `steps` of its gradients are in the model, as the ps counted them; None if
    unknown.
    """

    task: str
    host: str
    how: str
    global_step: int | None = None
    seconds: float | None = None
    steps: int | None = None

    @property
    def in_words(self) -> str:
        """Who was lost, how, and when: "worker2 was lost with host3 after global step 40".

        Without a known step, the last words are left out.
        """
        when = "" if self.global_step is None else f" after global step {self.global_step}"
        return f"{self.task} {self.how}{when}"

    def as_dict(self) -> dict[str, Any]:
        """Return {field: value}, the worker's entry in `lost` of verdict.json."""
        return asdict(self)


def excuse_lost(run: Run) -> Run:
    """Return the run with its lost workers moved from `expected` to `lost`, if `success` allows that.

    A worker other than the chief is lost if neither its records nor systemd say that it finished, or if it
    joined too late to take a step. Its existing server leaves `expected`, too. The run is returned unchanged
    if there is no usable tasks.json, if fewer workers finished than `success` needs, or if one client drives
    all workers.
    """
    candidates = [task for task in run.expected if task.job == "worker" and task.name != run.chief.name]
    lost = [
        task for task in candidates if not _has_finished(run, task.name) or _came_too_late(run, task.name)
    ]
    finished = len(run.of_job("worker")) - len(lost)
    is_known = run.endings and not run.unusable_endings and not run.rules.one_client
    if not lost or not is_known or finished < needed_workers(run.success, len(run.of_job("worker"))):
        return run
    names = {task.name for task in lost}
    return replace(
        run,
        expected=tuple(task for task in run.expected if task.name.replace(SERVER, "worker") not in names),
        lost=tuple(lost),
        rules=replace(run.rules, workers=run.rules.workers - len(lost)),
        # The file of a host that is gone was not collected.
        tasks={
            name: task
            for name, task in run.tasks.items()
            if name not in names or task.records or task.foreign
        },
    )


def was_there(run: Run, name: str) -> bool:
    """Return whether a worker took part, by its records or the ps's count of its steps.

    False only if it left no records and the ps counted 0 steps; True also if the count is unknown.
    """
    return bool(run.task(name).records) or run.contributions.get(name) != 0


def lost_workers(run: Run) -> tuple[LostWorker, ...]:
    """Return a LostWorker for each worker in `run.lost`, in its order; () if there is none."""
    seen = _last_unrecorded_step(run)
    return tuple(_described(run, task, seen) for task in run.lost)


def lost_workers_in_words(lost: Sequence[LostWorker]) -> str:
    """Return which workers were lost, how and when, joined by "; "; "" if none was.

    Of more than four, the first four and how many more there are.
    """
    return listed(worker.in_words for worker in lost)


def _has_finished(run: Run, name: str) -> bool:
    ending, by_systemd = run.task(name).ending, run.endings.get(name)
    if run.program is not None:  # a playbook ends its workers once the lead has ended
        return by_systemd is not None and by_systemd.well and by_systemd.ended_by != HOST
    if ending is not None and ending.event == "finished":
        # The end of an earlier part is a stop.
        return ending.text("reason") in GOOD_ENDINGS or not run.is_last
    return by_systemd is not None and by_systemd.by_itself


def _came_too_late(run: Run, name: str) -> bool:
    worker = run.task(name)
    took_no_step = not worker.windows and run.contributions.get(name) == 0
    return run.program is None and took_no_step and bool(worker.records) and joined_late(run, worker)


def _described(run: Run, task: RunTask, seen: int | None) -> LostWorker:
    ending, records = run.endings.get(task.name), run.task(task.name)
    how = f"was lost with {task.host}"
    if has_left(records) and run.is_last:
        how = LEFT
    elif records.ending is not None and records.ending.text("reason") in GOOD_ENDINGS:
        how = TOO_LATE
    elif not was_there(run, task.name):
        how = NOT_THERE
    elif ending is not None and ending.ended_by != HOST:
        how = f"{ending.in_words} on {task.host}"
    step = seen
    if records.processes:
        reaches = [process.reach[1] for process in records.processes if process.reach]
        step = reaches[-1] if reaches else None
    seconds = None
    if step is not None:
        steps = ((record, at) for record, at in own_seconds(run.chief) if record.event == "step")
        seconds = next((at for record, at in steps if record.integer("global_step_after") >= step), None)
    rounded = None if seconds is None or not math.isfinite(seconds) else round(seconds, 1)
    return LostWorker(task.name, task.host, how, step, rounded, run.contributions.get(task.name))


def _last_unrecorded_step(run: Run) -> int | None:
    """Return the highest global step after which the lost worker without records must have taken a step.

    From there to the end, the global step moved further than the steps in all windows that overlap the range.
    Return None if there is no such step, and unless all of this holds: exactly one lost worker has no
    records, the ps counted steps of it, one gradient makes a global step, and the chief set the variables
    once (a restore may use numbers of steps again).
    """
    silent = [task for task in run.lost if not run.task(task.name).records]
    counts_once = run.rules.gradients_per_step == 1 and len(run.chief.of("initialised", "restored")) == 1
    if len(silent) != 1 or not counts_once or not run.contributions.get(silent[0].name):
        return None
    tally, end = Tally(run.windows), run.global_steps
    edges = sorted({0, *(window.after for window in run.windows)}, reverse=True)
    return next((edge for edge in edges if end - edge > tally.recorded(edge, end)), None)
