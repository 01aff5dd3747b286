"""The ledger: small variables on the tasks that serve, through which the tasks of a run coordinate.

Each task that serves (a ps, a server, a worker that computes towers of another's graph) holds its own status,
a note about itself, and why the run ends. ps 0 also holds a note of each worker that takes steps, how far
each has come, and the counters: [global step, stop code, steps of each worker]. A step adds to the global
step and to the counts of those who made it in one operation: the shares and the global step never disagree.
In a local run the one process holds it all.
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

# Stop and end codes beside those of trainer/contract/exit_codes.py; 0 is none.
RUN_OVER = 1

_SECONDS_TO_ANSWER = 5.0
_SECONDS_TO_END = 1.0
# Of a task's own server: it is there, but the first call of a session on a busy machine takes its time.
_SECONDS_TO_BEGIN = 60.0

# How far a worker has come: it has its session to the ps, takes no more steps, needs the ps no more.
REPORTED, AT_START, SIGNED_OFF, LEAVING = range(1, 5)


class Marks(tuple[int, ...]):
    """How far each worker has come; 0 for one that has not reported."""

    def behind(self, mark: int) -> list[int]:
        """The workers that have reported and have not come as far as this mark."""
        return [worker for worker, its in enumerate(self) if 0 < its < mark]

    def at(self, mark: int) -> list[int]:
        """The workers that have come as far as this mark, and no further."""
        return [worker for worker, its in enumerate(self) if its == mark]


class _LedgerSession:
    """A session to variables of the ledger.

    Every method may raise tf.errors.OpError where a task is gone or has not made its part yet, and
    CallTookTooLong.
    """

    def __init__(self, target: str, graph: tf.Graph, filters: list[str]) -> None:
        self._session = open_session(target, graph, filters)

    def close(self) -> None:
        """Let the session go; never waits for a task that is gone."""
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
        """Describe it; `target` is the address of this task's own server."""
        with tf.Graph().as_default() as graph:
            self._part = TaskPart("ps0" if cluster.is_local else cluster.task, cluster.device)
            computes_towers = cluster.job == "worker" and cluster.serves
            self._towers = TowerPart(cluster.task, cluster.device) if computes_towers else None
            holds_attendance = cluster.device == cluster.ledger_devices[0]
            self._attendance = AttendancePart(cluster) if holds_attendance else None
        super().__init__(target, graph, cluster.filters(cluster.device))

    def create(self, note: Note) -> None:
        """Make it, empty but for the note."""
        for part in (self._part, self._towers, self._attendance):
            if part is not None:
                self._run(part.initializers, seconds=_SECONDS_TO_BEGIN)
        self._run(self._part.leave_note, {self._part.text: json.dumps(note)}, _SECONDS_TO_BEGIN)

    def status(self) -> PartStatus:
        """What this task holds about itself."""
        return read_status(self._run(self._part.read))

    def towers(self) -> tuple[int, int, float]:
        """How many towers were computed here, the global step after the last of them, and its loss."""
        if self._towers is None:
            raise ValueError("only a worker computes towers")
        (towers, global_step), loss = self._run(self._towers.read)
        return int(towers), int(global_step), float(loss)


class ServedPart(_LedgerSession):
    """The part of a task, other than a ps, that serves this client: a server, or a worker with towers."""

    def __init__(self, target: str, cluster: Cluster, task: str) -> None:
        """Describe it; `target` is where this client's sessions go, `task` a name of `cluster.served`."""
        device = cluster.served[task]
        with tf.Graph().as_default() as graph:
            self._part = TaskPart(task, device)
        super().__init__(target, graph, sorted({cluster.device, device}))

    def status(self) -> PartStatus:
        """What the task holds about itself."""
        return read_status(self._run(self._part.read))

    def set_ready(self, last_step: int) -> None:
        """Tell it that the run begins, and how long it is."""
        self._run(self._part.set_status, self._part.feeds({READY: 1, LAST_STEP: last_step}))

    def end(self, code: int, reason: str) -> None:
        """Tell it to end: RUN_OVER, STOPPED or the exit code of a failure."""
        part, feeds = self._part, self._part.feeds({END: code}, reason)
        # Nobody else tells it, and it serves until it is told: so once more where the first time fails.
        try:
            self._run(part.set_status_with_reason, feeds)
        except NO_ANSWER:
            self._run(part.set_status_with_reason, feeds)


class Ledger(_LedgerSession):
    """What the ps hold, for a worker that takes steps."""

    def __init__(self, target: str, cluster: Cluster) -> None:
        """Describe the variables; `target` is the server that this worker's sessions go to."""
        self._cluster = cluster
        self._beats = 0
        with tf.Graph().as_default() as graph:
            self._parts = [TaskPart(f"ps{ps}", device) for ps, device in enumerate(cluster.ledger_devices)]
            self._attendance = AttendancePart(cluster)
        super().__init__(target, graph, cluster.filters("/job:ps", cluster.device))

    def status(self, ps: int) -> PartStatus:
        """What this ps holds about itself."""
        return read_status(self._run(self._parts[ps].read))

    def beat(self, ps: int) -> None:
        """Let this ps, and those who wait there for the chief, see that the chief is at work."""
        self._beats += 1
        part = self._parts[ps]
        self._run(part.set_status, part.feeds({BEAT: self._beats}))

    def notes(self) -> dict[int, Note]:
        """The note of each worker that has reported."""
        notes = self._run(self._attendance.notes)
        return {worker: object_in(note) for worker, note in enumerate(notes) if note}

    def marks(self) -> Marks:
        """How far each worker has come."""
        return Marks(map(int, self._run(self._attendance.marks)))

    def report(self, note: Note) -> None:
        """Leave this worker's note on ps 0."""
        part = self._attendance
        self.mark(REPORTED)
        self._run(part.leave_notes[self._cluster.index], {part.text: json.dumps(note)})

    def mark(self, mark: int) -> None:
        """Say on ps 0 how far this worker has come; after SIGNED_OFF it applies no more steps."""
        part = self._attendance
        self._run(part.set_mark, {part.worker: self._cluster.index, part.value: mark})

    def clear_ready(self) -> None:
        """Hold back everyone who waits: the variables are about to be set."""
        for part in self._parts:
            self._run(part.set_status, part.feeds({READY: 0}))

    def set_ready(self, nonces: Sequence[int]) -> None:
        """Let everyone start, with the nonce of each ps."""
        for part, nonce in zip(self._parts, nonces, strict=True):
            self._run(part.set_status, part.feeds({READY: 1, NONCE: nonce}))

    def request_stop(self, code: int, reason: str) -> None:
        """Tell every task that the run ends, and why: STOPPED or the exit code of a failure."""
        self._to_every_ps(
            lambda part: self._run(part.set_status_with_reason, part.feeds({STOP: code}, reason))
        )
        self._run(self._attendance.set_stop_code, {self._attendance.value: code})

    def end(self, code: int) -> None:
        """Tell every ps to end: RUN_OVER, STOPPED or the exit code of a failure."""
        self._to_every_ps(lambda part: self._run(part.set_status, part.feeds({END: code}), _SECONDS_TO_END))

    def _to_every_ps(self, tell: Callable[[TaskPart], object]) -> None:
        """Tell each ps, also those behind one that is gone; raises the first error when all were tried."""
        errors: list[Exception] = []
        for part in self._parts:
            try:
                tell(part)
            except NO_ANSWER as error:  # noqa: PERF203 - the next one must hear
                errors.append(error)
        if errors:
            raise errors[0]
