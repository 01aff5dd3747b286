"""The files with the rows of tables on a task's own disk: what the task does with them when the chief asks.

A thread waits for a question in a queue of the task's server, does what is asked in this process, and puts
the answer into another queue (table_saves.py has the chief's side). So rows go from the variables of a ps
into its own files, and no other process ever holds all of them. A worker without tables has no such thread; a
task that only serves does not know the model, and always has one.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread, Timer
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.coordination.bounded_calls import open_session, run_once_more
from trainer.coordination.running_task import RunningTask
from trainer.engine.mutex import rows_mutex
from trainer.host.error_lines import error_in_short
from trainer.model.checkpoints import CHECKPOINTS, COPIES, UNFINISHED, bring_to_disk
from trainer.model.fingerprint import sum_of_rows
from trainer.model.saved_tables import RowFile, Rows, file_problem

v1 = tf.compat.v1

# A chief that asks nothing for so long is gone: pushes go on.
_SECONDS_TO_HOLD = 30.0
_ROW_FILE = re.compile(r"model\.ckpt-([0-9]{1,18})\.[A-Za-z0-9_.-]+\.rows")
_SUFFIX = re.compile(r"[A-Za-z0-9_.]+\.[0-9]+-of-[0-9]+\.[0-9]{5,}\.rows")

Asked = Mapping[str, Any]
Answer = dict[str, Any]
Numbers = npt.NDArray[np.generic]


class Question:
    """The operations that put a question to a task, and take an answer from it."""

    def __init__(self, device: str) -> None:
        """Add them to the default graph, for the task of this device."""
        with tf.device(f"{device}/device:CPU:0"):
            asked, answered = _queue("asked", tf.string), _queue("answered", tf.string)
            self.text = v1.placeholder(tf.string, [])
            self.ask, self.take_question = asked.enqueue(self.text), asked.dequeue()
            self.answer, self.take_answer = answered.enqueue(self.text), answered.dequeue()


class _Hold:
    """Holds up all pushes to this task's variables, until it is told to let go."""

    def __init__(self, session: tf.compat.v1.Session) -> None:
        """Add the operations to the default graph, on the device in force."""
        holds, lets_go = _queue("holds", tf.bool), _queue("lets_go", tf.bool)
        lock = tf.raw_ops.MutexLock(mutex=rows_mutex())
        with tf.control_dependencies([lock]):
            told = holds.enqueue(True)
        with tf.control_dependencies([told]):
            ended = lets_go.dequeue()
        with tf.control_dependencies([ended]):
            self._hold = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
        self._held, self._let_go = holds.dequeue(), lets_go.enqueue(True)
        self._session, self._lock = session, Lock()
        self._thread: Thread | None = None

    @property
    def lasts(self) -> bool:
        """Whether pushes are held up."""
        return self._thread is not None

    def begin(self) -> None:
        """Return once no push is under way; none begins then."""
        self.end()
        with self._lock:
            self._thread = Thread(target=lambda: self._session.run(self._hold), daemon=True)
            self._thread.start()
            self._session.run(self._held)

    def end(self) -> bool:
        """Let pushes go on; return whether they were held up until now."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._session.run(self._let_go)
                thread.join()
            return thread is not None


class TableFiles:
    """Does what the chief asks of a task, in a thread that lasts as long as the task's server.

    A question says what to "do": each method below whose name begins with `_do_` is one. An answer has
    "error" if it could not be done.
    """

    def __init__(self, target: str, device: str, run_directory: Path | None) -> None:
        """Take the task's own server and device."""
        self._run_directory = run_directory
        self._device = f"{device}/device:CPU:0"
        self._graph = tf.Graph()
        self._session = open_session(target, self._graph, [])
        with self._graph.as_default(), tf.device(self._device):
            self._question, self._hold = Question(device), _Hold(self._session)
            self._places = v1.placeholder(tf.int64, [2])
        self._reads: dict[str, tf.Tensor] = {}
        # The files of the save that goes on, with the SHA-256 of what the variables held.
        self._written: dict[RowFile, tuple[Rows, str]] = {}
        self._timer = Timer(0, lambda: None)

    def start(self) -> None:
        """Start the thread."""
        Thread(target=self._serve, daemon=True, name="table files").start()

    def _serve(self) -> None:
        known: dict[str, Callable[[Asked], Answer]] = {
            name: getattr(self, f"_do_{name}")
            for name in ("hold", "release", "write", "finish", "check", "folder", "keep")
        }
        with suppress(tf.errors.OpError):  # the server has ended
            while True:
                text = run_once_more(lambda: self._session.run(self._question.take_question))
                self._timer.cancel()
                answer: Answer = {}
                try:
                    asked = json.loads(text)
                    answer["id"] = asked["id"]
                    if asked["do"] not in {"write", "release"}:
                        self._hold.end()  # that of a chief that is gone
                    answer |= known[asked["do"]](asked)
                except Exception as error:
                    answer["error"] = error_in_short(error)
                if self._hold.lasts:
                    self._timer = Timer(_SECONDS_TO_HOLD, self._hold.end)
                    self._timer.start()
                self._session.run(self._question.answer, {self._question.text: json.dumps(answer)})

    def _do_hold(self, _asked: Asked) -> Answer:
        """Hold up pushes until `release`."""
        self._hold.begin()
        return {}

    def _do_release(self, _asked: Asked) -> Answer:
        """Let pushes go on; answer whether they were held up until now."""
        return {"held": self._hold.end()}

    def _do_write(self, asked: Asked) -> Answer:
        """Write the rows that variables hold, into unfinished files."""
        self._folder(CHECKPOINTS).mkdir(parents=True, exist_ok=True)
        self._written = {}
        for its in asked["tables"]:
            rows = Rows(its["table"], its["dtype"], tuple(its["shape"]), its["parts"])
            for file in rows.files_of(its["part"]):
                values = self._read(its["variable"], rows, file)
                content = values.reshape(-1).view(np.uint8).data
                self._unfinished(asked, file.suffix).write_bytes(content)
                self._written[file] = rows, hashlib.sha256(content).hexdigest()
        return {}

    def _do_finish(self, asked: Asked) -> Answer:
        """Let the files that were written count, once the disk has them and they read back as they were.

        The answer has the sum of each table, the SHA-256 of its files, and the tables that are not finite.
        """
        sums: dict[str, int] = {}
        hashes: dict[str, list[str]] = {}
        not_finite = []
        for file, (rows, sha256) in self._written.items():
            path = self._unfinished(asked, file.suffix)
            bring_to_disk(path)
            if problem := file_problem(path, file.size, sha256):
                raise ValueError(f"it does not read back as it was written: {problem}")
            values = np.fromfile(path, rows.dtype).reshape([-1, *rows.shape[1:]])
            if not np.all(np.isfinite(values)):
                not_finite.append(file.table)
            sums[file.table] = (sums.get(file.table, 0) + sum_of_rows(values, file)) % 2**64
            hashes.setdefault(file.table, []).append(sha256)
        if not not_finite:
            for file in self._written:
                self._unfinished(asked, file.suffix).rename(self._finished(asked, file.suffix))
            bring_to_disk(self._folder(CHECKPOINTS))
        self._written = {}
        return {
            "sums": {name: str(total) for name, total in sums.items()},
            "sha256": hashes,
            "not_finite": not_finite,
        }

    def _do_check(self, asked: Asked) -> Answer:
        """Answer what is wrong with files, by their suffixes; files that were brought here count then."""
        problems = {}
        for suffix, size, sha256 in asked["files"]:
            finished, unfinished = self._finished(asked, suffix), self._unfinished(asked, suffix)
            problem = file_problem(finished, size, sha256)
            if problem and unfinished.exists():
                bring_to_disk(unfinished)
                if not (problem := file_problem(unfinished, size, sha256)):
                    unfinished.rename(finished)
                    bring_to_disk(finished.parent)
            if problem:
                problems[suffix] = problem
        return {"problems": problems}

    def _do_folder(self, asked: Asked) -> Answer:
        """Answer the path of a folder, which is there then."""
        folder = self._folder(asked["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        return {"path": str(folder)}

    def _do_keep(self, asked: Asked) -> Answer:
        """Remove the files of all other steps than these from a folder, those of interrupted saves, too."""
        for path in self._folder(asked["folder"]).glob("model.ckpt-*.rows"):
            match = _ROW_FILE.fullmatch(path.name)
            if match and int(match[1]) not in asked["steps"]:
                path.unlink(missing_ok=True)
        return {}

    def _folder(self, name: str) -> Path:
        if self._run_directory is None or name not in {CHECKPOINTS, COPIES}:
            raise ValueError("it has no --run_directory, where its rows of tables would be saved")
        return self._run_directory.absolute() / name

    def _finished(self, asked: Asked, suffix: str, mark: str = "") -> Path:
        if not _SUFFIX.fullmatch(suffix):
            raise ValueError(f"{suffix!r} is not the name of a file with rows")
        return (
            self._folder(asked.get("folder", CHECKPOINTS)) / f"model.ckpt-{int(asked['step'])}{mark}.{suffix}"
        )

    def _unfinished(self, asked: Asked, suffix: str) -> Path:
        return self._finished(asked, suffix, UNFINISHED)

    def _read(self, variable: str, rows: Rows, file: RowFile) -> Numbers:
        """Return the rows for a file, as this task's variable of this name holds them."""
        if variable not in self._reads:
            dtype = tf.as_dtype(rows.dtype)
            with self._graph.as_default(), tf.device(self._device):
                shape = [len(range(file.part, rows.shape[0], file.parts)), *rows.shape[1:]]
                handle = tf.raw_ops.VarHandleOp(dtype=dtype, shape=shape, shared_name=variable)
                # A dense read would copy the whole variable.
                self._reads[variable] = tf.raw_ops.ResourceGather(
                    resource=handle, indices=tf.range(self._places[0], self._places[1]), dtype=dtype
                )
        feeds = {self._places: (file.first, file.first + file.rows)}
        values: Numbers = self._session.run(self._reads[variable], feeds)
        return values


def serve_table_files(task: RunningTask) -> None:
    """Start the thread, if this task has a server of its own."""
    if task.server is not None:
        TableFiles(task.target, task.cluster.device, task.options.run_directory).start()


def _queue(name: str, dtype: tf.DType) -> tf.queue.QueueBase:
    return v1.FIFOQueue(-1, dtype, [[]], shared_name=f"psfleet/table_files/{name}")
