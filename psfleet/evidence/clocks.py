"""Computes times within a run, for each task by itself: clocks of different hosts are never compared."""

from collections.abc import Iterable, Iterator

from psfleet.evidence.task_records import TaskRecords
from trainer.contract.records import Record

# A chart cannot show greater values; clocks and counters of real runs stay far below.
LARGEST = 1e12


def own_seconds(task: TaskRecords) -> tuple[tuple[Record, float], ...]:
    """Return (record, seconds since the task's first barrier) for each record, in order; () for no records.

    All workers pass the barrier (`peers_ready`) at nearly the same moment; seconds before it are negative.
    The time of a task without a barrier, such as a ps, starts at its first record. A rebooted host starts a
    new clock; then the time continues from the last record, because it is unknown how long the host was down.
    """
    steady = tuple(_steady(task))
    marks = [at for record, at in steady if record.event == "peers_ready"]
    zero = marks[0] if marks else steady[0][1] if steady else 0.0
    return tuple((record, at - zero) for record, at in steady)


def zero_in_words(tasks: Iterable[TaskRecords]) -> str:
    """Return in words where the seconds of `own_seconds` start for these tasks.

    The text is "the barrier", "its start" (the first record), or "the barrier, or its start" if the tasks
    differ. Tasks without records are ignored; if all are, the text is "the barrier".
    """
    barriers = {bool(task.of("peers_ready")) for task in tasks if task.records}
    if len(barriers) > 1:
        return "the barrier, or its start"
    return "its start" if barriers == {False} else "the barrier"


def _steady(task: TaskRecords) -> Iterator[tuple[Record, float]]:
    lost, last = 0.0, 0.0
    for record in task.records:
        now = min(max(record.monotonic, -LARGEST), LARGEST)
        if now + lost < last:
            # A window of steps records how long it took.
            seconds = record.number("seconds") if record.event == "step" else 0.0
            lost = last - now + (seconds if 0 <= seconds <= LARGEST else 0.0)
        last = now + lost
        yield record, last
