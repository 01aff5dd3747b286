"""When a run reached a training loss, by the records of steps that its tasks wrote.

The loss is smoothed: it is a mean over all workers' steps between successive powers of 1.15 of the examples,
with straight lines in between. Time counts from the end of the first step of any worker.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np

from psfleet.evidence.convergence import MOST_LOSS
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.task_records import TaskRecords
from trainer.contract.records import Record, read_records
from trainer.contract.run_tasks import RunTask

# Losses are averaged over the examples between two successive powers of this number.
_BIN = 1.15
_WIDEST = 0.3  # share of the examples before a window; wider windows do not say where the loss fell

Curve = Sequence[tuple[float, float]]  # pairs (examples, mean loss), sorted by examples


@dataclass(frozen=True)
class LossReached:
    """When a loss was reached: after how many `examples` of all workers, and how many `seconds`.

    The seconds count from the end of the first step of any worker.
    """

    examples: float
    seconds: float


def recorded_steps(folder: Path) -> dict[str, list[Record]]:
    """Return {task: its `step` records, in their order}, from the files `folder`/<task>/events/*.jsonl."""
    return {
        task.name: [
            record
            for path in task.glob("events/*.jsonl")
            for record in read_records(path)[0]
            if record.event == "step"
        ]
        for task in folder.iterdir()
        if task.is_dir()
    }


def when_reached(steps: Mapping[str, Sequence[Record]], loss: float, batch: int) -> LossReached | None:
    """Return when the smoothed training loss first fell to `loss`; None if it has not yet.

    `steps` is {task: its `step` records}; a global step has `batch` examples. The last mean of the curve
    counts only once the next mean has begun.
    """
    # Every task that records steps counts as a worker here, also a coordinator.
    tasks = {f"worker{index}": own for index, own in enumerate(filter(None, steps.values()))}
    run = Run(
        Path(),
        "benchmark",
        expected=tuple(RunTask("worker", index, "") for index in range(len(tasks))),
        tasks={name: TaskRecords(name, tuple(own)) for name, own in tasks.items()},
    )
    examples = examples_until(loss, curve_of(run, batch)[:-1])
    if examples is None:
        return None
    marks = sorted(
        (batch * record.integer("global_step_after"), record.wall) for own in tasks.values() for record in own
    )
    counts, walls = np.array(marks).T
    return LossReached(examples, float(np.interp(examples, counts, walls) - walls.min()))


def curve_of(run: Run, batch: int) -> Curve:
    """Return pairs (examples, mean loss of all workers), sorted by examples.

    A global step has `batch` examples. Each mean is over the steps between two powers of 1.15 of the
    examples.
    """
    bins = defaultdict[int, list[tuple[float, float, int]]](list)
    for window in run.windows:
        examples, width = (window.before + window.after) / 2 * batch, (window.after - window.before) * batch
        loss = window.loss_mean
        usable = loss is not None and abs(loss) <= MOST_LOSS and window.steps > 0
        if loss is not None and usable and 0 < width <= _WIDEST * examples:
            bins[math.floor(math.log(examples, _BIN))].append((math.log(examples), loss, window.steps))
    curve = []
    for _, inside in sorted(bins.items()):
        steps = [count for *_, count in inside]
        middle = fmean([examples for examples, *_ in inside], steps)
        curve.append((math.exp(middle), fmean([loss for _, loss, _ in inside], steps)))
    return curve


def examples_until(loss: float, curve: Curve) -> float | None:
    """Return the number of examples at which a curve first fell to `loss`; None if it never did.

    It is interpolated between two points. A curve that begins at or below `loss` must first rise above it.
    """
    for (before, above), (after, below) in pairwise(curve):
        if above > loss >= below:
            return math.exp(math.log(before) + math.log(after / before) * (above - loss) / (above - below))
    return None
