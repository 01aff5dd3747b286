"""The copies of the chief's checkpoints on other hosts: how they are sent, and how they are fetched.

Copies travel in TensorFlow's own session to a task on the other host, so they need no port, account or
program of their own. The process of that task writes the copies; kept_checkpoint_copies.py decides there
which copies count.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import TypeVar

import tensorflow as tf

from trainer.contract.exit_codes import PEERS_MISSING
from trainer.contract.task_names import CHIEF, split_name
from trainer.coordination.bounded_calls import (
    NO_ANSWER,
    call_within,
    close_in_background,
    is_lost_connection,
    open_session,
    run_once_more,
)
from trainer.coordination.running_task import RunningTask
from trainer.host.error_lines import error_in_short
from trainer.model.checkpoint_parts import MOST_BYTES, bytes_of, parts_of
from trainer.model.checkpoints import (
    COPIES,
    UNFINISHED,
    Checkpoint,
    CheckpointFolder,
    DamagedError,
    Fetch,
    Values,
    checkpoint_paths,
    step_in,
    with_manifest,
)
from trainer.model.tables.checkpoint_files import MANIFEST, tables_in
from trainer.process.console import say
from trainer.process.failure import TaskFailure
from trainer.process.port_probes import probe
from trainer.task.tables.chief import TableSaves

v1 = tf.compat.v1
Result = TypeVar("Result")

# The suffix of the last file that is sent of a checkpoint; the file contains the checkpoint's fingerprint.
SENT_SUFFIX = f"{UNFINISHED}.fingerprint"
_SECONDS_TO_ANSWER = 5.0
_SECONDS_FOR_A_PART = 60.0
# The slowest rate at which a keeper may read a copy back.
_BYTES_PER_SECOND = 10 << 20
_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_FOR_THE_LAST = 30.0
_FILE = re.compile(r"model\.ckpt-([0-9]{1,18})\.(index|data-[0-9]{5}-of-[0-9]{5}|tables\.json)")


class Keeper:
    """The chief's access to a task on another host that keeps copies of checkpoints.

    If the task does not answer, the methods raise tf.errors.OpError or CallTookTooLong.
    """

    def __init__(self, task: RunningTask, keeper: str, tensors: Mapping[str, tf.Tensor]) -> None:
        """Prepare, without connecting: add the operations to a graph of their own.

        `task` is the chief's, `keeper` the name of the task that keeps the copies, `tensors` is {name:
        tensor} of a checkpoint. The run directory must have the same path on all hosts.
        """
        cluster, self._target, self.task = task.cluster, task.target, keeper
        self.address = cluster.address_of(keeper)
        self._filters = cluster.filters(cluster.device_of(keeper), cluster.device)
        self._directory = str((task.options.run_directory or Path()).absolute() / COPIES)
        variables = {
            name: (tuple(tensor.shape.as_list()), tensor.dtype.size) for name, tensor in tensors.items()
        }
        self._bytes, self._parts = bytes_of(variables), parts_of(variables)
        with tf.Graph().as_default() as self._graph:
            with tf.device(f"{cluster.device}/device:CPU:0"):  # TensorFlow's fast path begins there
                self._fed = [
                    [v1.placeholder(tensors[piece.name].dtype, piece.dimensions) for piece in part]
                    for part in self._parts
                ]
            with tf.device(f"{cluster.device_of(keeper)}/device:CPU:0"):
                self._path, self._text = v1.placeholder(tf.string, ()), v1.placeholder(tf.string, ())
                self._paths = v1.placeholder(tf.string, [None])
                self._save_part = [
                    tf.raw_ops.SaveV2(
                        prefix=self._path,
                        tensor_names=[piece.name for piece in part],
                        shape_and_slices=[piece.specification for piece in part],
                        tensors=fed,
                    )
                    for part, fed in zip(self._parts, self._fed, strict=True)
                ]
                self._merge = tf.raw_ops.MergeV2Checkpoints(
                    checkpoint_prefixes=self._paths, destination_prefix=self._path, delete_old_dirs=False
                )
                self._write = tf.raw_ops.WriteFile(filename=self._path, contents=self._text)
                self._read = tf.raw_ops.ReadFile(filename=self._path)
                self._find = tf.raw_ops.MatchingFiles(pattern=self._path)

    def send(self, values: Values, step: int, fingerprint: str, manifest: str) -> None:
        """Send a checkpoint; return once the keeper has read the copy back, and the copy is usable.

        `values` is {name: value}; `manifest` is the manifest of the checkpoint's tables, "" without tables.

        Raises DamagedError if the keeper refuses the copy, or takes too long to read it back.
        """
        values = with_manifest(values, manifest)
        path = f"{self._directory}/model.ckpt-{step}"
        with self._session() as session:
            prefixes = [f"{path}{UNFINISHED}-{number}" for number in range(len(self._parts))]
            for prefix, part, fed, save in zip(
                prefixes, self._parts, self._fed, self._save_part, strict=True
            ):
                rows = [piece.of(values[piece.name]) for piece in part]
                feeds = {self._path: prefix, **dict(zip(fed, rows, strict=True))}
                _within(_SECONDS_FOR_A_PART, partial(session.run, save, feeds))
            feeds = {self._paths: prefixes, self._path: f"{path}{UNFINISHED}"}
            _within(_SECONDS_FOR_A_PART, partial(session.run, self._merge, feeds))
            if manifest:
                feeds = {self._path: f"{path}{UNFINISHED}.{MANIFEST}", self._text: manifest}
                _within(_SECONDS_FOR_A_PART, partial(session.run, self._write, feeds))
            feeds = {self._path: f"{path}{SENT_SUFFIX}", self._text: fingerprint}
            _within(_SECONDS_FOR_A_PART, partial(session.run, self._write, feeds))
            deadline = time.monotonic() + _SECONDS_FOR_A_PART + self._bytes / _BYTES_PER_SECOND
            while self._names(session, f"{path}{SENT_SUFFIX}"):
                if time.monotonic() > deadline:
                    raise DamagedError("it was not read back in time")
                time.sleep(_SECONDS_BETWEEN_LOOKS)
            if not self._names(session, f"{path}.index"):
                raise DamagedError(f"it was refused there; the log of {self.task} says why")

    def steps(self) -> list[int]:
        """Return the global steps of the copies that the keeper has, in no order; [] if it has none."""
        with self._session() as session:
            names = self._names(session, f"{self._directory}/model.ckpt-*.index")
        return [int(match[1]) for match in map(_FILE.fullmatch, names) if match]

    def fetch(self, step: int, folder: CheckpointFolder) -> None:
        """Write the keeper's copy of `step` into `folder`, as an unfinished checkpoint.

        It does not count yet. Without such a copy, write nothing. Raises OSError, and DamagedError if the
        copy is larger than a checkpoint of this model.
        """
        path, room = f"{self._directory}/model.ckpt-{step}", 2 * self._bytes + MOST_BYTES
        with self._session() as session:
            for name in self._names(session, f"{path}.*"):
                match = _FILE.fullmatch(name)
                if match is None or match[1] != str(step):
                    continue
                feeds = {self._path: f"{self._directory}/{name}"}
                content = _within(_SECONDS_FOR_A_PART, partial(session.run, self._read, feeds))
                room -= len(content)
                if room < 0:
                    raise DamagedError(f"it is larger than a checkpoint of this model: {self._bytes} bytes")
                Path(f"{folder.unfinished(step)}.{match[2]}").write_bytes(content)

    def _names(self, session: tf.compat.v1.Session, pattern: str) -> list[str]:
        paths = _within(_SECONDS_TO_ANSWER, partial(session.run, self._find, {self._path: pattern}))
        return [path.decode(errors="replace").rpartition("/")[2] for path in paths]

    @contextmanager
    def _session(self) -> Iterator[tf.compat.v1.Session]:
        session = open_session(self._target, self._graph, self._filters)
        try:
            yield session
        finally:
            close_in_background(session)


class CheckpointCopies:
    """Copies the newest checkpoint to each keeper, in a thread beside training; nothing without keepers.

    A copy that fails is printed and recorded. `run_ends` is set once the chief saves for the last time. From
    then on, keepers that end before the chief get no copy.
    """

    def __init__(self, task: RunningTask, tensors: Mapping[str, tf.Tensor], tables: TableSaves) -> None:
        """Choose the keepers, by the setting `checkpoint_copies`; nothing is sent yet.

        `tensors` is {name: tensor} of a checkpoint, `tables` copies the checkpoint's tables.
        """
        self._task, self._tables = task, tables
        # Pairs (ps, keeper of the ps's table files).
        self._table_keepers = tables.keepers(task.settings.checkpoint_copies)
        self._keepers = {
            name: Keeper(task, name, tensors)
            for name in task.cluster.keepers(task.settings.checkpoint_copies)
        }
        self._next: tuple[Values, Path, str, str] | None = None
        self._thread: Thread | None = None
        self._lock = Lock()
        self.run_ends = False

    def send(self, values: Values, path: Path, fingerprint: str, manifest: str) -> None:
        """Let the thread send the checkpoint at `path`, which has no suffix; return at once.

        A checkpoint that still waits to be sent is dropped. `values`, `fingerprint` and `manifest` (""
        without tables) are the checkpoint's. Without keepers, do nothing.
        """
        if not self._keepers and not self._table_keepers:
            return
        with self._lock:
            self._next = (values, path, fingerprint, manifest)
            if self._thread is None:
                self._thread = Thread(target=self._send_all, daemon=True)
                self._thread.start()

    def finish(self) -> None:
        """Wait until the thread has sent its copies, at most 30 s."""
        if thread := self._thread:
            thread.join(_SECONDS_FOR_THE_LAST)

    def ask_keepers(self, *, needed: bool) -> dict[int, list[Fetch]]:
        """Ask each keeper for its copies; return {global step: functions that fetch a copy of this step}.

        A keeper that does not answer is left out, and a line is printed. With `needed` (the chief has no
        checkpoint), ask it again for as long as the chief waits for all tasks, then raise TaskFailure
        (`peers_missing`): a run must not begin anew only because a keeper is late. A
        `barrier_deadline_seconds` of 0 means not to wait. Return {} without keepers.
        """
        waits = needed and self._task.settings.barrier_deadline_seconds > 0
        deadline = time.monotonic() + (self._task.seconds_to_gather if waits else 0.0)
        copies: dict[int, list[Fetch]] = {}
        for keeper in self._keepers.values():
            while True:
                try:
                    reason = probe(keeper.address)
                    for step in [] if reason else keeper.steps():
                        copies.setdefault(step, []).append(partial(self._fetch, keeper, step))
                except NO_ANSWER as error:
                    reason = error_in_short(error)
                if not reason:
                    break
                self._task.raise_if_stopping()
                if time.monotonic() >= deadline:
                    say(f"{keeper.task} does not tell which copies of checkpoints it has: {reason}")
                    if waits:
                        missing = f"{keeper.task}, which may have copies of this run's checkpoints"
                        raise TaskFailure(PEERS_MISSING, f"{missing}, does not answer: {reason}")
                    break
                time.sleep(_SECONDS_BETWEEN_LOOKS)
        return copies

    def _fetch(self, keeper: Keeper, step: int, folder: CheckpointFolder) -> None:
        began = time.monotonic()
        try:
            keeper.fetch(step, folder)
        except tf.errors.OpError as error:
            if is_lost_connection(error):
                raise
            raise DamagedError(error_in_short(error)) from error
        seconds = round(time.monotonic() - began, 6)
        say(f"Fetched the copy of global step {step} from {keeper.task}.")
        fields = {"global_step": step, "task": keeper.task, "seconds": seconds}
        self._task.records.write("checkpoint_fetched", fields)

    def _send_all(self) -> None:
        while True:
            with self._lock:
                work, self._next = self._next, None
                if work is None:
                    self._thread = None
                    return
            values, path, fingerprint, manifest = work
            step = step_in(path)
            # A copy of a checkpoint counts once its index exists, so the tables are copied first.
            if manifest:
                checkpoint = Checkpoint(path, step, values, tables_in(manifest, step))
                steps = [step_in(kept) for kept in checkpoint_paths(path.parent)]
                for ps, keeper in self._table_keepers:
                    self._send(keeper, step, partial(self._tables.copy, checkpoint, ps, keeper, steps))
            for name, own in self._keepers.items():
                self._send(name, step, partial(own.send, values, step, fingerprint, manifest))

    def _send(self, keeper: str, step: int, send: Callable[[], None]) -> None:
        if self.run_ends and self._ends_first(keeper):
            return
        began = time.monotonic()
        fields: dict[str, object] = {"global_step": step, "task": keeper}
        try:
            # A lost host must not hold up the copies for the others.
            if reason := probe(self._task.cluster.address_of(keeper)):
                raise ConnectionError(reason)
            send()
        except Exception as error:
            reason = error_in_short(error)
            say(f"The checkpoint at global step {step} could not be copied to {keeper}: {reason}")
            self._task.records.write("checkpoint_copy_failed", {**fields, "reason": reason})
        else:
            seconds = round(time.monotonic() - began, 6)
            self._task.records.write("checkpoint_copied", {**fields, "seconds": seconds})

    def _ends_first(self, keeper: str) -> bool:
        """Return whether the task `keeper` ends before the chief does: True for the other clients.

        False for the chief, and for a ps, a server or another task that serves.
        """
        job, index = split_name(keeper)
        return keeper != CHIEF and job == "worker" and index in self._task.cluster.clients


def _within(seconds: float, run: Callable[[], Result]) -> Result:
    return call_within(seconds, partial(run_once_more, run))
