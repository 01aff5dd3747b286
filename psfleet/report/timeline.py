"""Puts the events of all tasks in one order, and computes what the picture shows of each task."""

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from psfleet.evidence.answer import counted
from psfleet.evidence.clocks import LARGEST, own_seconds
from psfleet.evidence.price_of_faults import Restore, restores_in
from psfleet.evidence.reasons import in_a_line
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.task_records import TaskRecords
from psfleet.report.number_format import name_range, number, shorten, thin_out
from trainer.contract.records import Record

MOST_ROWS = 120
MOST_LANES = 12
_MOST_MARKS = 100  # of one kind in a lane
# The order of simultaneous events: all tasks lose the cluster before one restores the model.
_ORDER = (
    "started",
    "initialised",
    "recovering",
    "checkpoint_fetched",
    "checkpoint_damaged",
    "restored",
    "ps_restored",
    "peers_ready",
    "checkpoint_failed",
    "checkpointed",
    "checkpoint_copied",
    "checkpoint_copy_failed",
    "evaluated",
    "failed",
    "finished",
)
GRAVE = {"failed", "recovering", "checkpoint_failed", "checkpoint_damaged", "checkpoint_copy_failed"}
# {event that is combined if several follow one another: (text before one, text before several)}
_COUNTED = {
    "checkpointed": ("wrote the checkpoint ", "wrote {} checkpoints, the last: "),
    "evaluated": ("evaluated: ", "evaluated {} times, at last: "),
    "checkpoint_failed": ("", "{} times: "),
    "checkpoint_copied": ("copied the checkpoint ", "copied {} checkpoints, the last: "),
    "checkpoint_copy_failed": ("", "{} times: "),
}


@dataclass(frozen=True)
class Happening:
    """One event of a task.

    `event` is its name as in the records, `text` says it in words. `step` is the global step then, None if it
    is unknown, and `seconds` the task's own time (clocks.py). `exact` is True if the record itself has the
    step. If not, `step` is the last step that the task reached. A ps has no steps; its `step` is about the
    step that the chief had reached after as many seconds.
    """

    task: str
    event: str
    step: int | None
    exact: bool
    seconds: float
    text: str


@dataclass(frozen=True)
class Row:
    """A row of the timeline's table: one event, or several events of one kind that follow each other.

    `tasks`, `steps` and `text` are cells. `seconds` are the least and the greatest of the events' times.
    """

    tasks: str
    steps: str
    seconds: tuple[float, float]
    event: str
    text: str

    @property
    def grave(self) -> bool:
        """Whether something went wrong: the event is in GRAVE, such as "failed" or "checkpoint_failed"."""
        return self.event in GRAVE


@dataclass(frozen=True)
class Lane:
    """What the picture shows of a task, in the task's own seconds (clocks.py).

    `lives` are the (begin, end) of its processes, `marks` are (event, time). `lost` are the (begin, end) of
    times between the last record of a process without an ending and the next process.
    """

    name: str
    lives: Sequence[tuple[float, float]]
    lost: Sequence[tuple[float, float]]
    marks: Sequence[tuple[str, float]]


def tasks_with_records(run: Run) -> tuple[TaskRecords, ...]:
    """Return the run's tasks with records, then other tasks in the folder by name, then the evaluator.

    Tasks without records are left out.
    """
    expected = {task.name for task in run.all_tasks}
    others = [task for name, task in sorted(run.tasks.items()) if name not in expected]
    return tuple(task for task in (*run.all_tasks, *others, run.evaluator) if task.records)


def happenings(run: Run) -> tuple[Happening, ...]:
    """Return the events of all tasks in one order: by global step, and within a task as recorded.

    After a restored checkpoint, the global step is lower than before; the events after it still come later.
    Steps and measurements (`step`, `resources`, `tables`) are no events.
    """
    timed = own_seconds(run.chief)
    # (seconds since the chief's start, global step that the chief had reached then)
    course = [
        (seconds - timed[0][1], record.integer("global_step_after"))
        for record, seconds in timed
        if record.event == "step"
    ]
    of_tasks = {
        task.name: list(_task_happenings(task, course, run.global_steps)) for task in tasks_with_records(run)
    }
    of_tasks[run.chief.name] = list(_with_price(of_tasks.get(run.chief.name, []), restores_in(run)))
    restores = [
        (happening.step or 0, place)
        for place, happening in _placed(of_tasks.get(run.chief.name, []), [], -1)
        if happening.event == "restored"
    ]
    # The evaluator ends when all other tasks have ended. What it found before is with that in one row.
    first = {run.evaluator.name: LARGEST}
    placed = [_placed(own, restores, first.get(name, -1)) for name, own in of_tasks.items()]
    return tuple(happening for _, happening in heapq.merge(*placed, key=_sort_key))


def _placed(
    own: Sequence[Happening], restores: Sequence[tuple[int, float]], highest: float
) -> list[tuple[float, Happening]]:
    """Return (global step that orders the event, event) for each of a task's events `own`, in order.

    This step is the highest that the task had reached; it begins with `highest`. A task that passes the
    barrier at a lower step than before goes on from a checkpoint that the chief restored. So this event is
    placed after that restore. `restores` are (global step, position) of the chief's restores.
    """
    placed: list[tuple[float, Happening]] = []
    for happening in own:
        step = -1 if happening.step is None else happening.step
        if happening.event == "peers_ready" and step < highest:
            highest = next((at for restored, at in restores if restored <= step and at >= highest), highest)
        highest = max(highest, step)
        placed.append((highest, happening))
    return placed


def _sort_key(placed: tuple[float, Happening]) -> tuple[float, int, bool]:
    """Return the key that sorts placed events: by step, then by _ORDER, then exact steps first.

    A ps ends after the workers, and its step is not exact.
    """
    highest, happening = placed
    order = _ORDER.index(happening.event) if happening.event in _ORDER else len(_ORDER)
    return highest, order, not happening.exact


def rows(run: Run) -> tuple[Row, ...]:
    """Return the rows of the timeline's table, one for each group of adjacent events that are alike.

    Events are alike if they have the same name and text. Saves, copies and evaluations are alike if they are
    of one task, all passes of the barrier are alike.
    """

    def kind(happening: Happening) -> tuple[str, str]:
        alike = happening.task if happening.event in _COUNTED else happening.text
        return happening.event, alike if happening.event != "peers_ready" else ""

    return tuple(_row(list(group)) for _, group in groupby(happenings(run), kind))


def lanes(run: Run, named: Sequence[str]) -> tuple[tuple[Lane, ...], int]:
    """Return (lanes to draw, number of tasks without a lane); at most 12 lanes.

    Of more tasks, only these get one: the lead, the workers in `named`, and tasks that take no steps. The
    evaluator gets none and is not counted, because its time is unrelated to the time of the run.
    """
    recorded = [task for task in tasks_with_records(run) if task is not run.evaluator]
    kept = [task.name for task in recorded]
    if len(recorded) > MOST_LANES:
        others = [task.name for task in recorded if not task.windows]
        kept = list(dict.fromkeys([run.chief.name, *named, *others]))[:MOST_LANES]
    drawn = tuple(_lane(task) for task in recorded if task.name in kept)
    return drawn, len(recorded) - len(drawn)


def _lane(task: TaskRecords) -> Lane:
    timed = own_seconds(task)
    at = {id(record): seconds for record, seconds in timed}
    lives = [(at[id(life.records[0])], at[id(life.records[-1])]) for life in task.processes]
    gaps = zip(task.processes, pairwise(lives), strict=False)
    lost = [(before[1], after[0]) for process, (before, after) in gaps if process.ending is None]
    marks = [(event, at[id(record)]) for event in _ORDER for record in thin_out(task.of(event), _MOST_MARKS)]
    return Lane(task.name, thin_out(lives, _MOST_MARKS), thin_out(lost, _MOST_MARKS), marks)


def _task_happenings(
    task: TaskRecords, course: Sequence[tuple[float, int]], last: int
) -> Iterator[Happening]:
    seen: int | None = None
    lives = 0
    timed = own_seconds(task)
    for record, seconds in timed:
        if record.event == "step":
            seen = record.integer("global_step_after")
        if record.event in {"step", "resources", "tables"}:
            continue
        lives += record.event == "started"
        own_step = record.fields.get("global_step")
        if isinstance(own_step, int):
            seen = own_step
        elif not task.windows and lives > 1 and course:
            place = bisect_right(course, seconds - timed[0][1], key=lambda point: point[0])
            seen = course[min(place, len(course) - 1)][1]
        elif not task.windows and record.event == "finished" and course:
            seen = last
        again = " again" if record.event == "started" and lives > 1 else ""
        words = shorten(_WORDS[record.event](record)) if record.event in _WORDS else f"{record.event}{again}"
        yield Happening(task.name, record.event, seen, isinstance(own_step, int), seconds, words)


def _with_price(happenings: Iterable[Happening], restores: Iterable[Restore]) -> Iterator[Happening]:
    """Yield the chief's events, with the lost steps in the text of each `restored` and `initialised`.

    `restores` are the result of `restores_in`, in the same order.
    """
    lost = (restore.steps_lost for restore in restores)
    for happening in happenings:
        steps = next(lost, 0) if happening.event in {"restored", "initialised"} else 0
        price = f"; {counted(steps, 'step')} lost" if steps else ""
        yield replace(happening, text=happening.text + price)


def _metrics(record: Record) -> str:
    metrics = record.fields.get("metrics")
    values = metrics.items() if isinstance(metrics, dict) else ()
    return ", ".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in values)


def _file_name(path: str) -> str:
    return shorten(path.rstrip("/").rpartition("/")[2], 80)


_WORDS: Mapping[str, Callable[[Record], str]] = {
    "peers_ready": lambda record: (
        f"passed the barrier after waiting {number(record.number('waited_seconds'))} s for the others"
    ),
    "initialised": lambda _: "initialised the model",
    "restored": lambda record: f"restored the checkpoint {_file_name(record.text('checkpoint'))}",
    "ps_restored": lambda record: (
        f"restored on {in_a_line(record.text('task'))} alone its part of the checkpoint"
        f" {_file_name(record.text('checkpoint'))}"
    ),
    "checkpointed": lambda record: f"wrote the checkpoint {_file_name(record.text('path'))}",
    "checkpoint_failed": lambda record: f"could not write a checkpoint: {in_a_line(record.text('reason'))}",
    "checkpoint_damaged": lambda record: (
        f"passed over the damaged checkpoint {_file_name(record.text('path'))}:"
        f" {in_a_line(record.text('reason'))}"
    ),
    "checkpoint_copied": lambda record: (
        f"copied the checkpoint of step {record.integer('global_step')} to {in_a_line(record.text('task'))}"
    ),
    "checkpoint_copy_failed": lambda record: (
        f"could not copy a checkpoint to {in_a_line(record.text('task'))}: {in_a_line(record.text('reason'))}"
    ),
    "checkpoint_fetched": lambda record: (
        f"fetched the copy of step {record.integer('global_step')} from {in_a_line(record.text('task'))}"
    ),
    "evaluated": lambda record: f"evaluated: {_metrics(record)}",
    "recovering": lambda record: f"lost the cluster, and waits to go on: {in_a_line(record.text('reason'))}",
    "finished": lambda record: f"ended: {in_a_line(record.text('reason'))}",
    "failed": lambda record: f"failed ({record.text('class')}): {in_a_line(record.text('reason'))}",
}


def _row(group: Sequence[Happening]) -> Row:
    event, text = group[0].event, group[0].text
    times = [happening.seconds for happening in group if math.isfinite(happening.seconds)] or [0.0]
    if len(group) > 1 and event in _COUNTED:
        one, many = _COUNTED[event]
        text = many.format(len(group)) + group[-1].text.removeprefix(one)
    elif len(group) > 1 and event == "peers_ready":
        text = "passed the barrier"
    tasks = name_range(list(dict.fromkeys(happening.task for happening in group)))
    known = [happening.step for happening in group if happening.step is not None]
    steps = " to ".join(map(number, sorted({min(known), max(known)}))) if known else "-"
    about = "" if not known or all(happening.exact for happening in group) else "about "
    return Row(tasks, f"{about}{steps}", (min(times), max(times)), event, text)
