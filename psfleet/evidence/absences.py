"""Workers that joined an asynchronous run late, or left it in order and joined it again.

Where `training_run_success` lets the run end well without them, no check demands a share of the time in which
they were not there. What they recorded is judged like anything else.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from psfleet.evidence.answer import listed
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.task_records import Process, TaskRecords, stopped_by_hand
from psfleet.inventory.success_policy import needed_workers
from trainer.contract.task_names import CHIEF

# The ranges of global steps in which a worker was away, in order. The range (3, 7) is the steps 4 to 7.
Gaps = tuple[tuple[int, int], ...]


def absences(run: Run) -> Mapping[str, Gaps]:
    """Return {worker: its gaps} for each worker that was away for a time.

    Return {} if too few workers were there all the time for a good end (`training_run_success`), for a
    program, and for a run that is not asynchronous.
    """
    if run.program is not None or run.rules.replication != "async" or run.rules.existing_servers:
        return {}
    found = {worker.name: tuple(_gaps(run, worker)) for worker in run.workers[1:]}
    away = {name: gaps for name, gaps in found.items() if gaps}
    all_the_time = len(run.workers) - len(away)
    return away if all_the_time >= needed_workers(run.success, len(run.with_lost)) else {}


def joined_late(run: Run, worker: TaskRecords) -> bool:
    """Return whether the chief passed its first barrier before any process of this worker was there.

    Return False if the chief recorded no barrier.
    """
    met = next((record.integers("worker_nonces") for record in run.chief.of("peers_ready")), None)
    own = {process.nonce for process in worker.processes}
    return met is not None and met.get(worker.name) not in own


def has_left(worker: TaskRecords) -> bool:
    """Return whether people stopped the last process of a worker, by its records.

    False if its host went down, or if its end is unknown.
    """
    return stopped_by_hand(worker.ending)


def absences_in_words(run: Run) -> str:
    """Return who joined late, or left and joined again; "" if nobody did.

    Example: "worker2 left after global step 40 and joined again after 90".
    """
    return listed(
        f"{name} joined after global step {end}"
        if begin == part.first_step
        else f"{name} left after global step {begin} and joined again after {end}"
        for part in run.parts or (run,)
        for name, gaps in absences(part).items()
        for begin, end in gaps
    )


def share_present(run: Run, gaps: Gaps) -> float:
    """Return the share of the run's global steps, 0 to 1, in which a worker with these gaps was there."""
    gone = sum(end - begin for begin, end in gaps)
    return max(1 - gone / run.steps_made, 0.0) if run.steps_made > 0 else 1.0


def _gaps(run: Run, worker: TaskRecords) -> Iterator[tuple[int, int]]:
    lives = [life for life in worker.processes if life.last("peers_ready")]
    if not lives:
        return
    if joined_late(run, worker) and _begin(lives[0]) > run.first_step:
        yield run.first_step, _begin(lives[0])
    for life, following in pairwise(lives):
        if life.ending is None or not stopped_by_hand(life.ending):
            continue
        left, back = life.ending.integer("global_step"), _begin(following)
        if left < back and not _was_stopped_between(run.chief.processes, life, following):
            yield left, back


def _begin(life: Process) -> int:
    return life.of("peers_ready")[0].integer("global_step")


def _was_stopped_between(chief: Sequence[Process], one: Process, other: Process) -> bool:
    """Return whether the whole run was stopped between the processes `one` and `other` of a worker.

    Return True also if the records do not tell.
    """
    places = {life.nonce: place for place, life in enumerate(chief)}
    met = [life.of("peers_ready")[-1].integers("worker_nonces") for life in (one, other)]
    began, ended = (places.get(nonces.get(CHIEF)) for nonces in met)
    if began is None or ended is None:
        return True
    return any(stopped_by_hand(life.ending) for life in chief[began:ended])
