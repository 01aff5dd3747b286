"""A task that serves: it listens, watches its part of the ledger, and ends by itself when the run is over.

It is one of three: a ps, which holds variables; a server for a client in another process; a worker that
computes towers of a client's graph.
"""

import time

from trainer.contract.exit_codes import FAILURE_CLASSES, FINISHED, PEERS_MISSING, STOPPED
from trainer.contract.records import STOPPED_BY_HAND, STOPPED_BY_HOST
from trainer.coordination.bounded_calls import NO_ANSWER
from trainer.coordination.ledger import RUN_OVER, OwnPart
from trainer.coordination.ledger_parts import PartStatus
from trainer.coordination.running_task import RunningTask
from trainer.coordination.task_notes import serving_note
from trainer.process.console import say
from trainer.process.failure import StopRequested, TaskFailure
from trainer.process.stop_request import host_goes_down
from trainer.process.systemd import notify
from trainer.process.watchdog import SERVING, TRAINING
from trainer.task.kept_checkpoint_copies import keep_copies
from trainer.task.tables.local_files import serve_table_files
from trainer.task.towers import Towers

_POLL_SECONDS = 0.5
_TOWERS_POLL_SECONDS = 0.1
_SECONDS_TO_ANSWER = 0.3
# How long past the workers' own deadlines a task that serves waits for a run that never starts.
_GRACE_SECONDS = 30.0
# A task that has served a run for this long has made progress; the chief saves after 5 s.
_SECONDS_TO_GET_ON = 10.0
# How long a ps waits for the chief's end code once a run has failed, or once a run was stopped and may still
# have to be saved.
_SECONDS_AFTER_FAILURE = 6.0
_SECONDS_AFTER_STOP = 60.0


def run_serving(task: RunningTask) -> int:
    """Serve until the run is over; return FINISHED, or STOPPED if this task was stopped before.

    Raises TaskFailure if the run has failed or none has started, and tf.errors.OpError.
    """
    # Not server.join(): Python's handler of SIGTERM never runs inside it.
    task.join_cluster()
    part = OwnPart(task.target, task.cluster)
    part.create(serving_note(task))
    keep_copies(task)
    serve_table_files(task)
    notify("READY=1", "STATUS=no run yet")
    say(f"{task.cluster.task} listens at {task.cluster.address}")
    towers = Towers(task, part) if task.cluster.job == "worker" else None
    try:
        code, reason = _serve(task, part, towers)
    except StopRequested:
        code, reason = _end_in_ledger(part) or (
            STOPPED,
            STOPPED_BY_HOST if host_goes_down() else STOPPED_BY_HAND,
        )
    finally:
        task.resources.end()
        if towers is not None:
            towers.close()
    if code in FAILURE_CLASSES:
        raise TaskFailure(code, reason)
    task.records.write("finished", {"reason": reason, **(towers.finished_fields if towers else {})})
    if towers is not None:
        towers.print_summary()
    say(f"{task.cluster.task} ends: {reason}")
    # train.yml stops the remaining tasks as soon as the chief has ended. A run that is over was not stopped.
    return STOPPED if task.stop.is_set() and code != RUN_OVER else FINISHED


def _serve(task: RunningTask, part: OwnPart, towers: Towers | None) -> tuple[int, str]:
    """Watch this task's part of the ledger until the task must end; return (end code, reason in words).

    The code is the one in the ledger, or PEERS_MISSING if no run has started in time. A stop code counts as
    the end code if the chief shows no sign of life after it. Raises StopRequested on SIGTERM.
    """
    # The chief may start `seconds_to_gather` later than this task, and then waits as long for the others.
    seconds_to_start = 2 * task.seconds_to_gather + _GRACE_SECONDS
    watchdog, part_of_time = task.progress.watchdog, SERVING if task.cluster.job == "ps" else TRAINING
    started, stop_seen, beat, chief_seen = 0.0, None, 0, time.monotonic()
    while True:
        task.raise_if_stopping()
        # Sample before the status is read: reading it is work of this process, but not of the run.
        task.resources.sample()
        status = None
        try:
            status = part.status()
        except NO_ANSWER as error:  # without a notification, the watchdog ends this task
            say(f"this task's own server does not answer: {error}")
        if status is not None:
            started = started or (_begin(task) if status.ready else 0.0)
            if started and time.monotonic() > started + _SECONDS_TO_GET_ON:
                task.lives.note_progress()
            if towers is not None and started:
                towers.update(status.last_step)
            line = towers.line if towers else "serving a run"
            watchdog.shorten(part_of_time if started else 1.0)
            watchdog.sign(line if status.ready else "no run yet")
            if status.beat != beat:  # the chief sets the variables, takes steps, or saves
                beat, chief_seen = status.beat, time.monotonic()
            stop_seen = (stop_seen or time.monotonic()) if status.stop else None
            if status.end:
                # The task that wrote the end code still waits for the answer; without an answer, it waits
                # some seconds.
                time.sleep(_SECONDS_TO_ANSWER)
                return status.end, _reason(status.end, status)
            patience = _SECONDS_AFTER_STOP if status.stop == STOPPED else _SECONDS_AFTER_FAILURE
            if stop_seen is not None and time.monotonic() > max(stop_seen, chief_seen) + patience:
                return status.stop, _reason(status.stop, status)
        if not started and time.monotonic() > chief_seen + seconds_to_start:
            within = f"within {time.monotonic() - task.started:.0f} s"
            return PEERS_MISSING, f"no run has started {within}: the chief or another task is missing"
        task.stop.wait(_POLL_SECONDS if towers is None else _TOWERS_POLL_SECONDS)


def _begin(task: RunningTask) -> float:
    """Begin to measure what this task uses while it serves a run; return the present monotonic time."""
    task.resources.begin()
    return time.monotonic()


def _end_in_ledger(part: OwnPart) -> tuple[int, str] | None:
    """Return (end code, reason in words) from this task's part of the ledger.

    Return None if the part has no end code, or if the task's own server does not answer.
    """
    try:
        status = part.status()
    except NO_ANSWER:
        return None
    return (status.end, _reason(status.end, status)) if status.end else None


def _reason(code: int, status: PartStatus) -> str:
    return {RUN_OVER: "run over", STOPPED: STOPPED_BY_HAND}.get(code, status.stop_reason)
