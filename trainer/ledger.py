"""The ledger: small variables on the ps through which the tasks of a run coordinate.

Each ps holds its own status, its description of the cluster, and why the run ends. ps 0 also holds a note of
each worker, how far each has come, and the counters: [global step, stop code, steps of each worker].
A worker adds one constant vector to the counters for each step, so its share and the global step never
disagree. Every process builds these variables with the same names on the same devices: so they are one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Thread
from typing import Any, TypeVar

import tensorflow as tf

from trainer.cluster import Cluster

v1 = tf.compat.v1

# Stop and end codes beside those of trainer/exit_codes.py; 0 is none.
RUN_OVER = 1

COUNTERS = "psfleet/counters"
GLOBAL_STEP, STOP_CODE, FIRST_WORKER = 0, 1, 2
_READY, _STOP, _END, _NONCE = range(4)

_SECONDS_TO_ANSWER = 5.0
_SECONDS_TO_END = 1.0

# How far a worker has come.
REPORTED, AT_START, SIGNED_OFF = range(3)

Result = TypeVar("Result")
Note = Mapping[str, object]


@dataclass(frozen=True)
class PsStatus:
    """What a ps holds: whether the chief has made it ready, stop and end codes, its nonce, its own note."""

    ready: bool
    stop: int
    end: int
    nonce: int
    stop_reason: str
    note: Note


@dataclass(frozen=True)
class Attendance:
    """What ps 0 holds about the workers: the note of each that has reported, and the mark of each."""

    notes: Mapping[int, Note]
    marks: tuple[int, ...]

    def behind(self, mark: int) -> list[int]:
        """The workers that have reported and have not come as far as this mark."""
        return [worker for worker in sorted(self.notes) if self.marks[worker] < mark]


class CallTookTooLong(Exception):  # noqa: N818 - not an error of the program
    """TensorFlow did not answer in time."""


def call_within(seconds: float, function: Callable[[], Result]) -> Result:
    """Call a function that TensorFlow may hold for ever, as when a ps is stopped but its port answers.

    Raises CallTookTooLong after `seconds`, the call stays behind in its thread. Raises what it raises.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise CallTookTooLong(f"no answer within {seconds:g} s")
    return results[0]


def close_in_background(session: tf.compat.v1.Session) -> None:
    """Let a session go without waiting for a ps that may be gone."""
    Thread(target=_close_quietly, args=(session,), daemon=True).start()


def create_counters(workers: int) -> tf.Variable:
    """The counters on ps 0, in the default graph."""
    return _variable(COUNTERS.rpartition("/")[2], 0, [FIRST_WORKER + workers], tf.int64)


class Ledger:
    """A session to the ledger: the whole of it for a worker, its own part for a ps.

    Every method may raise tf.errors.OpError where a ps is gone or has not made its part yet, and
    CallTookTooLong.
    """

    def __init__(self, target: str, cluster: Cluster) -> None:
        """Describe the variables; `target` is the address of this task's own server."""
        self._cluster = cluster
        mine = f"/job:{cluster.job}/task:{cluster.index}"
        tasks = [cluster.index] if cluster.job == "ps" else range(len(cluster.ps_hosts))
        with tf.Graph().as_default() as graph:
            self._parts = {task: _PsPart(task) for task in tasks}
            self._attendance = _AttendancePart(len(cluster.worker_hosts)) if 0 in tasks else None
        filters = [mine] if cluster.job == "ps" else ["/job:ps", mine]
        self._session = v1.Session(target, graph=graph, config=v1.ConfigProto(device_filters=filters))

    def close(self) -> None:
        """Let the session go; never waits for a ps that is gone."""
        close_in_background(self._session)

    def create_own_part(self, note: Note) -> None:
        """Make this ps's part, empty but for its note."""
        part = self._parts[self._cluster.index]
        self._run(part.initializers + (self._attendance.initializers if self._attendance else []))
        self._run(part.leave_note, {part.text: json.dumps(note)})

    def status(self, ps: int) -> PsStatus:
        """What this ps holds."""
        status, reason, note = self._run(self._parts[ps].read)
        return PsStatus(
            ready=bool(status[_READY]),
            stop=int(status[_STOP]),
            end=int(status[_END]),
            nonce=int(status[_NONCE]),
            stop_reason=reason.decode(errors="replace"),
            note=_note(note),
        )

    def attendance(self) -> Attendance:
        """Which workers have reported, and how far each has come."""
        part = self._of_ps0()
        marks, *notes = self._run([part.marks, *part.notes])
        return Attendance(
            notes={worker: _note(note) for worker, note in enumerate(notes) if note},
            marks=tuple(int(mark) for mark in marks),
        )

    def counters(self) -> list[int]:
        """[global step, stop code, steps of worker 0, ...]."""
        return [int(count) for count in self._run(self._of_ps0().counters)]

    def report(self, note: Note) -> None:
        """Leave this worker's note on ps 0."""
        part = self._of_ps0()
        self.mark(REPORTED)
        self._run(part.leave_notes[self._cluster.index], {part.text: json.dumps(note)})

    def mark(self, mark: int) -> None:
        """Say on ps 0 how far this worker has come; after SIGNED_OFF it applies no more steps."""
        part = self._of_ps0()
        self._run(part.set_mark, {part.worker: self._cluster.index, part.value: mark})

    def clear_ready(self) -> None:
        """Hold back everyone who waits: the variables are about to be set."""
        for part in self._parts.values():
            self._run(part.set_status, {part.places: [_READY], part.values: [0]})

    def set_ready(self, nonces: Mapping[int, int]) -> None:
        """Let everyone start, with the nonce of each ps."""
        for ps, part in self._parts.items():
            self._run(part.set_status, {part.places: [_READY, _NONCE], part.values: [1, nonces[ps]]})

    def request_stop(self, code: int, reason: str) -> None:
        """Tell every task that the run ends, and why: STOPPED or the exit code of a failure."""
        ps0 = self._of_ps0()

        def tell(part: _PsPart) -> None:
            self._run(part.give_reason, {part.text: reason})
            self._run(part.set_status, {part.places: [_STOP], part.values: [code]})

        self._to_every_ps(tell)
        self._run(ps0.set_stop_code, {ps0.value: code})

    def end(self, code: int) -> None:
        """Tell every ps to end: RUN_OVER, STOPPED or the exit code of a failure."""

        def tell(part: _PsPart) -> None:
            self._run(part.set_status, {part.places: [_END], part.values: [code]}, _SECONDS_TO_END)

        self._to_every_ps(tell)

    def _to_every_ps(self, tell: Callable[[_PsPart], None]) -> None:
        """Tell each ps, also those behind one that is gone; raises the first error when all were tried."""
        errors: list[Exception] = []
        for part in self._parts.values():
            try:
                tell(part)
            except (tf.errors.OpError, CallTookTooLong) as error:  # noqa: PERF203 - the next one must hear
                errors.append(error)
        if errors:
            raise errors[0]

    def _of_ps0(self) -> _AttendancePart:
        if self._attendance is None:
            raise ValueError(f"{self._cluster.task} has no access to the part of ps0")
        return self._attendance

    def _run(
        self,
        fetches: object,
        feeds: Mapping[tf.Tensor, object] | None = None,
        seconds: float = _SECONDS_TO_ANSWER,
    ) -> list[Any]:
        session = self._session
        result: list[Any] = call_within(seconds, lambda: session.run(fetches, feeds))
        return result


class _PsPart:
    """The variables that each ps has, and what is done with them."""

    def __init__(self, ps: int) -> None:
        status = _variable(f"status_{ps}", ps, [4], tf.int64)
        reason = _variable(f"stop_reason_{ps}", ps, [], tf.string)
        note = _variable(f"note_ps{ps}", ps, [], tf.string)
        self.initializers = [status.initializer, reason.initializer, note.initializer]
        self.text = v1.placeholder(tf.string, [])
        self.places = v1.placeholder(tf.int64, [None])
        self.values = v1.placeholder(tf.int64, [None])
        with tf.device(status.device):
            self.read = [status.read_value(), reason.read_value(), note.read_value()]
            self.leave_note = note.assign(self.text).op
            self.give_reason = reason.assign(self.text).op
            self.set_status = v1.scatter_update(status, self.places, self.values).op


class _AttendancePart:
    """The variables that only ps 0 has."""

    def __init__(self, workers: int) -> None:
        notes = [_variable(f"note_worker{worker}", 0, [], tf.string) for worker in range(workers)]
        marks = _variable("marks", 0, [workers], tf.int64)
        counters = create_counters(workers)
        self.initializers = [variable.initializer for variable in (*notes, marks, counters)]
        self.text = v1.placeholder(tf.string, [])
        self.worker = v1.placeholder(tf.int64, [])
        self.value = v1.placeholder(tf.int64, [])
        with tf.device(counters.device):
            self.notes = [note.read_value() for note in notes]
            self.marks = marks.read_value()
            self.counters = counters.read_value()
            self.leave_notes = [note.assign(self.text).op for note in notes]
            self.set_mark = v1.scatter_update(marks, self.worker, self.value).op
            self.set_stop_code = v1.scatter_update(counters, STOP_CODE, self.value).op


def _variable(name: str, ps: int, shape: list[int], dtype: tf.DType) -> tf.Variable:
    """A resource variable; its name and device are what other processes find it by."""
    with tf.device(f"/job:ps/task:{ps}/device:CPU:0"):
        return v1.get_variable(
            f"psfleet/{name}",
            shape=shape,
            dtype=dtype,
            initializer=v1.zeros_initializer(),
            trainable=False,
            use_resource=True,
        )


def _note(text: bytes) -> Note:
    try:
        note = json.loads(text)
    except ValueError:
        return {}
    return note if isinstance(note, dict) else {}


def _close_quietly(session: tf.compat.v1.Session) -> None:
    try:
        session.close()
    except tf.errors.OpError:
        return
