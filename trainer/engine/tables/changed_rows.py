"""Which rows of a table's part have changed since the last save, and how a save reads rows beside training.

Each row has a mark of one byte. The mark is compared with `now`, a number that each save raises by 2, modulo
256:

    now        the row has changed since the last save began
    now - 1    the last save has read the row, and the row has not changed since
    now - 2    the row changed between the last save but one and the last save, which has to read it
    others     the row has not changed for longer; only a save of all rows has to read it

A save raises `now` while pushes are blocked; this takes the same time for any number of rows. Then the save
reads the rows that it wants, some at a time, while pushes go on. A push that changes a wanted row before the
save has read it puts the row's old value into a queue first. So a save gets each row once, with the value
that the row had when `now` was raised.

All of this happens under the mutex of rows: in the graphs of workers (`RowMarks`), and in the graph of the
process that holds the part (`MarkedPart`).
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.coordination.bounded_calls import run_once_more
from trainer.engine.mutex import rows_mutex
from trainer.model.tables.lookup import create_filled

v1 = tf.compat.v1

# Which rows a save wants: the rows with one of this many marks, counted from now - 2 downwards.
NONE, CHANGED, ALL = 0, 1, 254
# How many bytes of rows are read at once; pushes wait meanwhile.
_BYTES_AT_ONCE = 4 << 20
# How many bytes of rows may wait to be written in order.
_BYTES_WAITING = 64 << 20

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class SharedVariable:
    """The name, type and shape of a variable with rows; another graph needs them to use the same variable."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, variable: tf.Variable) -> "SharedVariable":
        """Return the name, type and shape of `variable`."""
        return cls(str(variable.op.name), variable.dtype.base_dtype.name, tuple(variable.shape.as_list()))

    @property
    def row_bytes(self) -> int:
        """The size of one row in bytes."""
        return int(np.prod(self.shape[1:], dtype=np.int64)) * np.dtype(self.dtype).itemsize


class RowMarks:
    """The marks that say which rows of a part of a table have changed, for a worker's graph, which pushes."""

    def __init__(self, part: tf.Variable) -> None:
        """Create the marks on the device of `part`, as local variables: checkpoints leave them out."""
        local = v1.GraphKeys.LOCAL_VARIABLES
        marks, state = (f"{part.op.name}/{name}" for name in ("marks", "state_of_marks"))
        self._marks = create_filled(marks, part.device, part.shape[:1], np.uint8(0), local)
        self._state = create_filled(state, part.device, [2], np.uint8(0), local)
        self.variables = [self._marks, self._state]

    def change(
        self,
        positions: tf.Tensor,
        variables: Sequence[tf.Variable],
        after: Sequence[tf.Tensor],
        change: Callable[[], tf.Operation],
    ) -> tf.Operation:
        """Return the operation that changes some rows, and marks them as changed.

        Before the change, the old values of rows that a save still has to read are put into the queue.

        Args:
            positions: int32 or int64 [rows], the positions in the part of the rows that change.
            variables: the part and its slots that `change` writes.
            after: tensors that must exist before the change.
            change: adds the change to the graph, and returns its operation.

        """
        now, wanted = tf.unstack(self._state.read_value())
        unread = _wanted(positions, now, wanted, self._marks.handle)
        ordered = sorted(variables, key=lambda variable: str(variable.op.name))
        queue = _row_queue([SharedVariable.of(variable) for variable in ordered])
        rows = [_gather(variable.handle, unread, variable.dtype.base_dtype) for variable in ordered]
        with tf.control_dependencies([queue.enqueue_many([tf.cast(unread, tf.int64), *rows]), *after]):
            changed = change()
        with tf.control_dependencies([changed]):
            return _scatter(self._marks.handle, positions, now)


class MarkedPart:
    """The rows of a part and of its slots, as a save reads them in the process that holds the part.

    Several rows are a sequence of arrays: their positions, int64 [rows], then for each of `variables` the
    values [rows, ...].

    Attributes:
        variables: the part and its slots, sorted by name.
        rows: the number of rows in the part.

    """

    def __init__(self, part: str, variables: Sequence[SharedVariable]) -> None:
        """Add the operations to the default graph, on the current `tf.device`; `part` is the part's name.

        `variables` are the part and its slots.
        """
        self.variables = sorted(variables, key=lambda variable: variable.name)
        self.rows = self.variables[0].shape[0]
        row_bytes = sum(variable.row_bytes for variable in self.variables)
        self._at_once = max(1, _BYTES_AT_ONCE // row_bytes)
        self._range, self._wanted = v1.placeholder(tf.int64, [2]), v1.placeholder(tf.uint8, [])
        marks = _handle(SharedVariable(f"{part}/marks", "uint8", (self.rows,)))
        state = _handle(SharedVariable(f"{part}/state_of_marks", "uint8", (2,)))

        def read_state() -> tuple[tf.Tensor, tf.Tensor]:
            now, wanted = tf.unstack(tf.raw_ops.ReadVariableOp(resource=state, dtype=tf.uint8))
            return now, wanted

        def set_state(now: tf.Tensor, wanted: tf.Tensor) -> tf.Operation:
            return tf.raw_ops.AssignVariableOp(resource=state, value=tf.stack([now, wanted]))

        def find() -> list[tf.Tensor]:
            now, wanted = read_state()
            positions = tf.range(self._range[0], self._range[1])
            return [_wanted(positions, now, wanted, marks)]

        def read() -> list[tf.Tensor]:
            [positions], (now, _) = find(), read_state()
            values = [
                _gather(_handle(variable), positions, tf.as_dtype(variable.dtype))
                for variable in self.variables
            ]
            with tf.control_dependencies([*values, _scatter(marks, positions, now - np.uint8(1))]):
                return [tf.identity(each) for each in (positions, *values)]

        def forget() -> list[tf.Tensor]:
            now, _ = read_state()
            positions = tf.range(self._range[0], self._range[1])
            with tf.control_dependencies(
                [_scatter(marks, positions, now - np.uint8(1)), set_state(now, np.uint8(NONE))]
            ):
                return [tf.identity(now)]

        self._find, self._read, self._forget = _locked(find), _locked(read), _locked(forget)
        self._begin = set_state(read_state()[0] + np.uint8(2), self._wanted)
        queue = _row_queue(self.variables)
        self._count, self._size = v1.placeholder(tf.int32, []), queue.size()
        self._dequeue = queue.dequeue_many(self._count)

    def begin(self, session: tf.compat.v1.Session, wanted: int) -> None:
        """Begin a save of the rows `wanted` with their present values.

        `wanted` is NONE, ALL, or CHANGED: the rows that changed since the last save. Pushes must be blocked
        during this call; afterwards they may go on.
        """
        _run(session, self._begin, {self._wanted: wanted})

    def wanted_positions(self, session: tf.compat.v1.Session) -> Iterator[Numbers]:
        """Yield arrays with the positions of the rows that the save still has to read: int64 [rows], rising.

        There is one array for each range of the part, which may be empty. Rows in the queue are left out.
        """
        for some in self._ranges():
            yield _run(session, self._find, {self._range: some})[0]

    def take_queued(self, session: tf.compat.v1.Session) -> Iterator[Sequence[Numbers]]:
        """Empty the queue, which pushes fill; yield all its rows at once, or nothing if it was empty."""
        if count := _run(session, self._size):
            yield _run(session, self._dequeue, {self._count: count})

    def read(
        self, session: tf.compat.v1.Session, queued: Sequence[Sequence[Numbers]] = ()
    ) -> Iterator[Sequence[Numbers]]:
        """Yield the rows that the save wants, some at a time, each row once.

        `queued` are rows that the caller has taken out of the queue before; they are yielded, too.

        The rows come in the order of their positions, within each yield and from one yield to the next, so
        that files are written from beginning to end. Rows from the queue wait until their position is next.
        If too many rows wait, all of them come at once, out of that order.
        """
        waiting = _Waiting(self._at_once)
        waiting.add(queued)
        for first, end in self._ranges():
            rows = _run(session, self._read, {self._range: (first, end)})
            waiting.add(self.take_queued(session))
            due = waiting.take(end)
            joined = [np.concatenate(arrays) for arrays in zip(rows, *due, strict=True)]
            order = np.argsort(joined[0], kind="stable")
            yield [array[order] for array in joined]

    def forget(self, session: tf.compat.v1.Session) -> None:
        """Mark every row as not changed, empty the queue, and end the save, if there is one."""
        for some in self._ranges():
            _run(session, self._forget, {self._range: some})
        for _ in self.take_queued(session):
            pass

    def _ranges(self) -> Iterator[tuple[int, int]]:
        return (
            (first, min(first + self._at_once, self.rows)) for first in range(0, self.rows, self._at_once)
        )


class _Waiting:
    """Rows that wait until their position is next. Each row is copied once, into its range of positions."""

    def __init__(self, at_once: int) -> None:
        """Start with no rows; each range has `at_once` positions."""
        self._at_once = at_once
        self._ranges: dict[int, list[Sequence[Numbers]]] = {}
        self._bytes = 0

    def add(self, several: Iterable[Sequence[Numbers]]) -> None:
        """Add rows, given as several sequences of arrays (see MarkedPart), in any order."""
        for rows in several:
            order = np.argsort(rows[0], kind="stable")
            numbers = rows[0][order] // self._at_once
            begins = np.flatnonzero(np.append(True, np.diff(numbers) != 0))
            for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
                piece = [values[order[begin:end]] for values in rows]
                self._ranges.setdefault(int(numbers[begin]), []).append(piece)
            self._bytes += sum(values.nbytes for values in rows)

    def take(self, end: int) -> list[Sequence[Numbers]]:
        """Remove and return the rows in ranges that begin below position `end`; all rows if too many wait.

        Each element of the list has several rows, as MarkedPart describes; [] if there are none.
        """
        most = math.inf if self._bytes > _BYTES_WAITING else end
        due = [number for number in self._ranges if number * self._at_once < most]
        removed = [rows for number in due for rows in self._ranges.pop(number)]
        self._bytes -= sum(values.nbytes for rows in removed for values in rows)
        return removed


def _run(
    session: tf.compat.v1.Session, fetches: object, feeds: Mapping[tf.Tensor, object] | None = None
) -> Any:  # noqa: ANN401
    # If this process refuses a request to itself, the request has changed nothing, so it may be sent
    # again.
    return run_once_more(lambda: session.run(fetches, feeds))


def _locked(change: Callable[[], list[tf.Tensor]]) -> list[tf.Tensor]:
    """Return the tensors that `change` returns, computed under the mutex of rows.

    The mutex and the operations are on the current `tf.device`.
    """
    lock = tf.raw_ops.MutexLock(mutex=rows_mutex())
    with tf.control_dependencies([lock]):
        results = change()
    with tf.control_dependencies(results):
        unlocked = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
    with tf.control_dependencies([unlocked]):
        return [tf.identity(result) for result in results]


def _row_queue(variables: Sequence[SharedVariable]) -> tf.queue.QueueBase:
    """Return the queue, on the current `tf.device`, of rows with their old values: positions, then values."""
    dtypes = [tf.int64, *(tf.as_dtype(variable.dtype) for variable in variables)]
    shapes = [tf.TensorShape([]), *(tf.TensorShape(variable.shape[1:]) for variable in variables)]
    # A process keeps a queue under its name, and its next run may have another optimizer with other
    # variables.
    name = " ".join(variable.name for variable in variables)
    return v1.FIFOQueue(-1, dtypes, shapes, shared_name=f"psfleet/kept_rows/{name}")


def _wanted(positions: tf.Tensor, now: tf.Tensor, wanted: tf.Tensor, marks: tf.Tensor) -> tf.Tensor:
    """Return those of `positions` whose rows a save still has to read, in the same order: [rows].

    `now` and `wanted` are the state of the marks: the number of the last save, and which rows it wants.
    """
    are_wanted = now - np.uint8(2) - _gather(marks, positions, tf.uint8) < wanted
    return tf.gather(positions, tf.reshape(tf.where(are_wanted), [-1]))


def _handle(variable: SharedVariable) -> tf.Tensor:
    return tf.raw_ops.VarHandleOp(
        dtype=tf.as_dtype(variable.dtype), shape=variable.shape, shared_name=variable.name
    )


def _gather(handle: tf.Tensor, positions: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    # A dense read would copy the whole variable.
    return tf.raw_ops.ResourceGather(resource=handle, indices=positions, dtype=dtype)


def _scatter(handle: tf.Tensor, positions: tf.Tensor, value: tf.Tensor) -> tf.Operation:
    return tf.raw_ops.ResourceScatterUpdate(resource=handle, indices=positions, updates=value)
