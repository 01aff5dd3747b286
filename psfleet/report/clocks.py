"""Time within a run: each task has its own, no clock of one host is compared with that of another."""

from collections.abc import Iterable, Iterator

from psfleet.evidence.recorded_run import TaskRecords
from trainer.contract.records import Record

# Beyond this nothing can be drawn: no clock and no counter of a real run comes near it.
LARGEST = 1e12


def own_seconds(task: TaskRecords) -> tuple[tuple[Record, float], ...]:
    """Return each record of a task with its seconds since the task's first barrier, by its host's own clock.

    The barrier (`peers_ready`) is what all workers pass at nearly the same moment. A task that tells of none,
    as a ps, counts from its start. A host that was started again begins a new clock: its time goes on where
    the old one had ended, for how long it was away nobody knows.
    """
    steady = tuple(_steady(task))
    marks = [at for record, at in steady if record.event == "peers_ready"]
    zero = marks[0] if marks else steady[0][1] if steady else 0.0
    return tuple((record, at - zero) for record, at in steady)


def beginning(tasks: Iterable[TaskRecords]) -> str:
    """Return from when the seconds of these tasks count, in words."""
    barriers = {bool(task.of("peers_ready")) for task in tasks if task.records}
    if len(barriers) > 1:
        return "the barrier, or its start"
    return "its start" if barriers == {False} else "the barrier"


def _steady(task: TaskRecords) -> Iterator[tuple[Record, float]]:
    lost, last = 0.0, 0.0
    for record in task.records:
        now = min(max(record.monotonic, -LARGEST), LARGEST)
        if now + lost < last:
            # Of a window of steps it is known how long it took.
            seconds = record.number("seconds") if record.event == "step" else 0.0
            lost = last - now + (seconds if 0 <= seconds <= LARGEST else 0.0)
        last = now + lost
        yield record, last
