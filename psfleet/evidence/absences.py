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
    """Return {worker: its gaps}, without the workers that were never away.

    A worker is away before it joins late, and from a stop by people to its next process, unless the whole run
    was stopped. Worker 0 and lost workers are not among the keys. Return {} if fewer workers were there all
    the time than `training_run_success` needs, for a program, for existing servers, and for a run that is not
    asynchronous.
    """
    if run.program is not None or run.rules.replication != "async" or run.rules.existing_servers:
        return {}
    found = {worker.name: tuple(_gaps(run, worker)) for worker in run.workers[1:]}
    away = {name: gaps for name, gaps in found.items() if gaps}
    all_the_time = len(run.workers) - len(away)
    return away if all_the_time >= needed_workers(run.success, len(run.with_lost)) else {}


def joined_late(run: Run, worker: TaskRecords) -> bool:
    """Return whether the chief's first barrier names no process of this worker.

    The first barrier is the chief's first `peers_ready`. True also for a worker without records; False if the
    chief recorded no barrier.
    """
    met = next((record.integers("worker_nonces") for record in run.chief.of("peers_ready")), None)
    own = {process.nonce for process in worker.processes}
    return met is not None and met.get(worker.name) not in own


def has_left(worker: TaskRecords) -> bool:
    """Return whether the worker's last process recorded that people stopped it.

    False for every other end: its host went down, it failed, it finished, or it recorded no end.
    """
    return stopped_by_hand(worker.ending)


def absences_in_words(run: Run) -> str:
    """Return which workers joined late, or left and joined again, and at which steps; "" if none did.

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
    """Return the share of the run's global steps, 0 to 1, that lie outside `gaps`; 1.0 without steps.

    Example, for a run of 100 steps: share_present(run, ((20, 40),)) -> 0.8
    """
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

    It was if people stopped one of the chief's processes (`chief`) in between. True also if the records do
    not show which processes of the chief the two met.
    """
    places = {life.nonce: place for place, life in enumerate(chief)}
    met = [life.of("peers_ready")[-1].integers("worker_nonces") for life in (one, other)]
    began, ended = (places.get(nonces.get(CHIEF)) for nonces in met)
    if began is None or ended is None:
        return True
    return any(stopped_by_hand(life.ending) for life in chief[began:ended])
