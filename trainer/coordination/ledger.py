"""The ledger: small variables on the tasks that serve, through which the tasks of a run coordinate.

A task that serves is a ps, a server, or a worker that computes towers of a client's graph. It holds its own
status, a note about itself, and the reason why the run ends. ps 0 also holds a note and a mark of each worker
that takes steps, and the counters: [global step, stop code, steps of each worker]. A step raises the global
step and the counts of its workers in a single operation, so that the counters never disagree. In a local run
the one process holds the whole ledger.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from trainer.coordination.bounded_calls import (
    NO_ANSWER,
    call_within,
    close_in_background,
    open_session,
    run_once_more,
)
from trainer.coordination.ledger_parts import (
    BEAT,
    END,
    LAST_STEP,
    NONCE,
    READY,
    STOP,
    AttendancePart,
    Note,
    PartStatus,
    TaskPart,
    TowerPart,
    read_status,
)
from trainer.host.task_traces import object_in
from trainer.process.cluster import Cluster

# A stop code or end code is 0 (none), an exit code of trainer/contract/exit_codes.py, or RUN_OVER. As a stop
# code in the counters, RUN_OVER makes every worker treat its present step as the run's last step.
RUN_OVER = 1

_SECONDS_TO_ANSWER = 5.0
_SECONDS_TO_END = 1.0
# For the first calls to a task's own server, which certainly exists but may be slow on a busy machine.
_SECONDS_TO_BEGIN = 60.0

# The marks of a worker, in their order: it has left its note; it has opened its session; it takes no more
# steps; it needs the ps no more.
REPORTED, AT_START, SIGNED_OFF, LEAVING = range(1, 5)


class Marks(tuple[int, ...]):
    """The mark of each worker, by its index; 0 for a worker that has not reported."""

    def behind(self, mark: int) -> list[int]:
        """Return the indices of the workers whose mark is below `mark`, but not 0."""
        return [worker for worker, own in enumerate(self) if 0 < own < mark]

    def at(self, mark: int) -> list[int]:
        """Return the indices of the workers whose mark is exactly `mark`."""
        return [worker for worker, own in enumerate(self) if own == mark]


class _LedgerSession:
    """A session to variables of the ledger.

    Every method may raise tf.errors.OpError if a task is gone or has not created its part yet, and
    CallTookTooLong if a task does not answer in time: 5 s, if the method does not say otherwise.
    """

    def __init__(self, target: str, graph: tf.Graph, filters: list[str]) -> None:
        self._session = open_session(target, graph, filters)

    def close(self) -> None:
        """Close the session and return at once, without waiting for a task that is gone."""
        close_in_background(self._session)

    def _run(
        self,
        fetches: object,
        feeds: Mapping[tf.Tensor, object] | None = None,
        seconds: float = _SECONDS_TO_ANSWER,
    ) -> Any:  # noqa: ANN401 - of the shape of `fetches`
        session = self._session
        return call_within(seconds, lambda: run_once_more(lambda: session.run(fetches, feeds)))


class OwnPart(_LedgerSession):
    """The part of the ledger that this task itself holds."""

    def __init__(self, target: str, cluster: Cluster) -> None:
        """Build the graph of this part; `target` is the address of this task's own server."""
        with tf.Graph().as_default() as graph:
            self._part = TaskPart("ps0" if cluster.is_local else cluster.task, cluster.device)
            computes_towers = cluster.job == "worker" and cluster.serves
            self._towers = TowerPart(cluster.task, cluster.device) if computes_towers else None
            holds_attendance = cluster.device == cluster.ledger_devices[0]
            self._attendance = AttendancePart(cluster) if holds_attendance else None
        super().__init__(target, graph, cluster.filters(cluster.device))

    def create(self, note: Note) -> None:
        """Create the variables of this part: the note is `note`, everything else is 0 or empty.

        The task's own server has 60 s to answer each call, because it may be slow on a busy machine.
        """
        for part in (self._part, self._towers, self._attendance):
            if part is not None:
                self._run(part.initializers, seconds=_SECONDS_TO_BEGIN)
        self._run(self._part.write_note, {self._part.text: json.dumps(note)}, _SECONDS_TO_BEGIN)

    def status(self) -> PartStatus:
        """Return this task's own status."""
        return read_status(self._run(self._part.read))

    def towers(self) -> tuple[int, int, float]:
        """Return (number of towers computed here, global step after the last tower, the last tower's loss).

        All are 0 before the first tower. Raises ValueError if this task is not a worker that computes towers.
        """
        if self._towers is None:
            raise ValueError("only a worker computes towers")
        (towers, global_step), loss = self._run(self._towers.read)
        return int(towers), int(global_step), float(loss)


class ServingPart(_LedgerSession):
    """The part of a task, other than a ps, that serves this client: a server, or a worker with towers."""

    def __init__(self, target: str, cluster: Cluster, task: str) -> None:
        """Build the graph; `target` is the client's server, `task` is in `cluster.serving_tasks`."""
        device = cluster.serving_tasks[task]
        with tf.Graph().as_default() as graph:
            self._part = TaskPart(task, device)
        super().__init__(target, graph, sorted({cluster.device, device}))

    def status(self) -> PartStatus:
        """Return the task's status."""
        return read_status(self._run(self._part.read))

    def set_ready(self, last_step: int) -> None:
        """Tell the task that the run begins, and that `last_step` is the run's last step."""
        self._run(self._part.set_status, self._part.feeds({READY: 1, LAST_STEP: last_step}))

    def end(self, code: int, reason: str) -> None:
        """Tell the task to end, and why; `code` is RUN_OVER, STOPPED or the exit code of a failure.

        If the task does not answer, try a second time.
        """
        part, feeds = self._part, self._part.feeds({END: code}, reason)
        # The task serves until this client tells it to end. No other task tells it, so try a second time.
        try:
            self._run(part.set_status_with_reason, feeds)
        except NO_ANSWER:
            self._run(part.set_status_with_reason, feeds)


class Ledger(_LedgerSession):
    """The parts of the ledger on all ps, for a worker that takes steps."""

    def __init__(self, target: str, cluster: Cluster) -> None:
        """Build the graph of all parts; `target` is the server of this worker's sessions."""
        self._cluster = cluster
        self._beats = 0
        with tf.Graph().as_default() as graph:
            self._parts = [TaskPart(f"ps{ps}", device) for ps, device in enumerate(cluster.ledger_devices)]
            self._attendance = AttendancePart(cluster)
        super().__init__(target, graph, cluster.filters("/job:ps", cluster.device))

    def status(self, ps: int) -> PartStatus:
        """Return the status of ps number `ps`."""
        return read_status(self._run(self._parts[ps].read))

    def beat(self, ps: int) -> None:
        """Change the beat of ps number `ps`, to show the tasks that wait there that the chief is at work."""
        self._beats += 1
        part = self._parts[ps]
        self._run(part.set_status, part.feeds({BEAT: self._beats}))

    def notes(self) -> dict[int, Note]:
        """Return {index of a worker: the worker's note}, without workers that have not reported."""
        notes = self._run(self._attendance.notes)
        return {worker: object_in(note) for worker, note in enumerate(notes) if note}

    def marks(self) -> Marks:
        """Return the marks of all workers, by index."""
        return Marks(map(int, self._run(self._attendance.marks)))

    def report(self, note: Note) -> None:
        """Write this worker's note to ps 0, and set the worker's mark to REPORTED."""
        part = self._attendance
        self.mark(REPORTED)
        self._run(part.write_notes[self._cluster.index], {part.text: json.dumps(note)})

    def mark(self, mark: int) -> None:
        """Set this worker's mark on ps 0 to `mark`; after SIGNED_OFF this worker applies no more steps."""
        part = self._attendance
        self._run(part.set_mark, {part.worker: self._cluster.index, part.value: mark})

    def clear_ready(self) -> None:
        """Set READY to 0 on all ps, so that tasks that start now wait: the variables are about to be set."""
        for part in self._parts:
            self._run(part.set_status, part.feeds({READY: 0}))

    def set_ready(self, nonces: Sequence[int]) -> None:
        """Set READY to 1 on all ps, so that waiting tasks start, and NONCE to the ps's nonce.

        `nonces` has one nonce for each ps, in order.
        """
        for part, nonce in zip(self._parts, nonces, strict=True):
            self._run(part.set_status, part.feeds({READY: 1, NONCE: nonce}))

    def request_stop(self, code: int, reason: str) -> None:
        """Tell every task that the run ends, and why; `code` is STOPPED or the exit code of a failure.

        If a ps does not answer, the others are still told; then its error is raised, and the stop code in the
        counters stays as it was.
        """
        self._to_every_ps(
            lambda part: self._run(part.set_status_with_reason, part.feeds({STOP: code}, reason))
        )
        self._run(self._attendance.set_stop_code, {self._attendance.value: code})

    def take_no_more_steps(self) -> None:
        """Set the stop code to RUN_OVER: all workers treat their present step as the run's last step."""
        self._run(self._attendance.set_stop_code, {self._attendance.value: RUN_OVER})

    def end(self, code: int) -> None:
        """Tell every ps to end; `code` is RUN_OVER, STOPPED or the exit code of a failure.

        If a ps does not answer within 1 s, the others are still told; then its error is raised.
        """
        self._to_every_ps(lambda part: self._run(part.set_status, part.feeds({END: code}), _SECONDS_TO_END))

    def _to_every_ps(self, tell: Callable[[TaskPart], object]) -> None:
        """Call `tell` for every ps, even after a call failed; then raise the first error, if any."""
        errors: list[Exception] = []
        for part in self._parts:
            try:
                tell(part)
            except NO_ANSWER as error:  # noqa: PERF203 - the other ps must be told, too
                errors.append(error)
        if errors:
            raise errors[0]
