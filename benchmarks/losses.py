"""When a run reached a training loss, by the records of steps that its tasks wrote.

The loss is smoothed as for a run's pace: a mean over all workers' steps between successive powers of 1.15 of
the examples, with straight lines in between. Time counts from the end of the first step of any worker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from psfleet.evidence.learning_pace import curve_of, examples_until
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.task_records import TaskRecords
from trainer.contract.records import Record, read_records
from trainer.contract.run_tasks import RunTask


@dataclass(frozen=True)
class Reached:
    """The examples of all workers until the loss was reached, and the seconds since the first step."""

    examples: float
    seconds: float


def recorded_steps(folder: Path) -> dict[str, list[Record]]:
    """Return task -> its records of steps; each task has a folder of its own below this one."""
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


def reached(steps: Mapping[str, Sequence[Record]], loss: float, batch: int) -> Reached | None:
    """Return when a loss was reached, with `batch` examples in a global step; None before that.

    The last mean counts only once the next one has begun.
    """
    # The pace calls every task that records steps a worker, and a coordinator is one here, too.
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
    return Reached(examples, float(np.interp(examples, counts, walls) - walls.min()))
