"""The chief's part in saving and restoring tables: each ps writes and reads the rows that it holds.

The chief asks all of them at once (table_files.py), and makes the manifest of what they answer. A file that a
ps needs and does not have comes straight from the task that has it, one file after the other.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

import tensorflow as tf

from trainer.contract.records import draw_nonce
from trainer.contract.task_names import CHIEF
from trainer.coordination.bounded_calls import call_within, close_in_background, open_session, run_once_more
from trainer.engine.training import TrainingGraph
from trainer.model.checkpoints import (
    CHECKPOINTS,
    COPIES,
    UNFINISHED,
    Checkpoint,
    DamagedError,
    NotFinite,
    bring_to_disk,
)
from trainer.model.pieces import TableVariable
from trainer.model.row_loading import RowLoading
from trainer.model.saved_tables import RowFile, Rows, SavedTable, file_problem, manifest_of
from trainer.process.cluster import Cluster
from trainer.process.port_probes import probe
from trainer.task.table_files import Asked, Question

v1 = tf.compat.v1

# To send one file, or to read it back.
_SECONDS_FOR_A_FILE = 60.0

Result = TypeVar("Result")


class _Line:
    """A session to some tasks, which are asked to do something (table_files.py), and copy files.

    All of them must answer: TensorFlow waits for ever for one that does not.
    """

    def __init__(self, cluster: Cluster, target: str, tasks: Sequence[str]) -> None:
        """Open it through the chief's server, whose files can be copied, too."""
        self._devices = {
            task: cluster.device if cluster.is_local else cluster.device_of(task) for task in tasks
        }
        filters = cluster.filters(*self._devices.values(), cluster.device)
        self._devices[CHIEF] = cluster.device
        with tf.Graph().as_default() as self._graph:
            self._questions = {task: Question(self._devices[task]) for task in tasks}
            self._from, self._to = v1.placeholder(tf.string, []), v1.placeholder(tf.string, [])
        self._copying: dict[tuple[str, str], tf.Operation] = {}
        self.session = open_session(target, self._graph, filters)

    def close(self) -> None:
        """Close the session without waiting for a task that is gone."""
        close_in_background(self.session)

    def ask(self, task: str, what: str, more: Asked) -> Asked:
        """Ask a task to do something, and return its answer."""
        question, identity = self._questions[task], draw_nonce()
        self._run(question.ask, {question.text: json.dumps({"do": what, "id": identity, **more})})
        while True:
            answer: Asked = json.loads(self._run(question.take_answer))
            if answer.get("id") == identity:  # else it is for an earlier chief
                break
        if problem := answer.get("error"):
            raise DamagedError(f"{task}: {problem}")
        return answer

    def copy(self, task: str, path: str, to_task: str, to: str) -> None:
        """Let a task write what another task reads, whole."""
        if (task, to_task) not in self._copying:
            with self._graph.as_default():
                with tf.device(f"{self._devices[task]}/device:CPU:0"):
                    content = tf.raw_ops.ReadFile(filename=tf.identity(self._from))
                with tf.device(f"{self._devices[to_task]}/device:CPU:0"):
                    written = tf.raw_ops.WriteFile(filename=tf.identity(self._to), contents=content)
            self._copying[task, to_task] = written
        self._run(self._copying[task, to_task], {self._from: path, self._to: to})

    def _run(self, fetch: object, feeds: Mapping[tf.Tensor, object] | None = None) -> Any:  # noqa: ANN401
        return run_once_more(partial(self.session.run, fetch, feeds))


class TableSaves:
    """Saves and restores the tables of a model; without tables it does nothing.

    Its methods raise tf.errors.OpError if a ps is lost, and DamagedError if one answers that it could not do
    what was asked.
    """

    def __init__(self, graph: TrainingGraph, directory: Path | None, target: str) -> None:
        """Take the chief's graph, the folder with its own checkpoints, and the chief's server."""
        self._cluster, self._directory = graph.cluster, directory
        self._tables = [its for its in graph.variables if isinstance(its, TableVariable)]
        devices = self._cluster.ledger_devices if self._tables else ()
        names = [CHIEF] if self._cluster.is_local else [f"ps{ps}" for ps in range(len(devices))]
        self._ps = names[: len(devices)]
        with graph.graph.as_default():
            self._loading = {
                ps: RowLoading(self._tables, f"{device}/device:CPU:0")
                for ps, device in zip(self._ps, devices, strict=True)
            }
        self._line: _Line | None = None
        self._target = target
        # One thread at a time asks, so that nothing makes a pause longer.
        self._lock, self._lock_of_others = RLock(), RLock()

    @property
    def are_none(self) -> bool:
        """Whether the model has no tables."""
        return not self._tables

    def connect_anew(self) -> None:
        """Let go of ps that may have been lost: the next question goes to those that hold the run then."""
        line, self._line = self._line, None
        if line is not None:
            line.close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Return a context in which no push changes anything on a ps."""
        with self._lock:
            self._ask("hold")
            try:
                yield
            finally:
                answers = self._ask("release")
            if not all(answer["held"] for answer in answers):
                raise DamagedError("a ps did not hold up the workers' pushes for as long as the save took")

    def write(self, step: int) -> None:
        """Let each ps write the rows that it holds."""
        self._ask("write", lambda ps: {"step": step, "tables": self._described(self._ps.index(ps))})

    def finish(self, step: int) -> str:
        """Let each ps bring what it wrote to its disk, and return the manifest. Raises NotFinite."""
        if self.are_none:
            return ""
        answers = self._ask("finish", lambda _: {"step": step})
        if not_finite := [name for answer in answers for name in answer["not_finite"]]:
            raise NotFinite(f"{not_finite[0]} is not finite")
        return manifest_of(step, [self._saved(table, answers) for table in self._tables])

    def keep(self, steps: Sequence[int]) -> None:
        """Let each ps remove the files of all other steps."""
        self._ask("keep", lambda _: {"steps": list(steps), "folder": CHECKPOINTS})

    def missing(self, checkpoint: Checkpoint) -> str:
        """Return which file of a checkpoint's tables no task has, in words; "" if the ps have all of them.

        Files go to the ps first that is to read them.
        """
        try:
            return self._missing(checkpoint)
        except DamagedError as error:
            return str(error)

    def _missing(self, checkpoint: Checkpoint) -> str:
        wanted = self._at_home(checkpoint)
        checked = self._ask("check", lambda ps: _check(checkpoint.global_step, wanted[ps]))
        left = []
        for ps, answer in zip(self._ps, checked, strict=True):
            for file in [file for file in wanted[ps] if file.suffix in answer["problems"]]:
                its = _check(checkpoint.global_step, {file: wanted[ps][file]})
                if not self._fetched(ps, file, its):
                    left.append(f"{ps}: {answer['problems'][file.suffix]}")
        return "; ".join(left[:2])

    def restore(self, session: tf.compat.v1.Session, checkpoint: Checkpoint) -> None:
        """Set the rows to those of a checkpoint that lacks nothing."""
        paths = {ps: f"{folder}/{checkpoint.path.name}" for ps, folder in self._folders().items()}
        wanted = self._at_home(checkpoint)
        self._with_all(lambda ps: self._loading[ps].run_all(session, paths[ps], wanted[ps]))

    def bring(self, checkpoint: Checkpoint) -> None:
        """Bring the files of a checkpoint beside it, so that it is whole without the ps. Raises OSError."""
        folders = self._folders()
        for ps, files in self._at_home(checkpoint).items():
            for file, sha256 in files.items():
                path = Path(f"{checkpoint.path}.{file.suffix}")
                if not file_problem(path, file.size, sha256):
                    continue  # the ps is on this host
                aside = Path(f"{checkpoint.path}{UNFINISHED}.{file.suffix}")
                self._own_line.copy(ps, f"{folders[ps]}/{path.name}", CHIEF, str(aside))
                bring_to_disk(aside)
                if problem := file_problem(aside, file.size, sha256):
                    raise DamagedError(f"from {ps}: {problem}")
                aside.rename(path)
        bring_to_disk(checkpoint.path.parent)

    def keepers(self, copies: int) -> list[tuple[str, str]]:
        """Return each ps with the tasks that keep copies of its files, on so many hosts with its own."""
        return [(ps, keeper) for ps in self._ps for keeper in self._cluster.keepers(copies, ps)]

    def copy(self, checkpoint: Checkpoint, ps: str, keeper: str, steps: Sequence[int]) -> None:
        """Copy the files of a ps to another task, and return once they count there.

        The task removes those of all other steps than these. Raises CallTookTooLong, too.
        """
        step, files, place = checkpoint.global_step, self._at_home(checkpoint)[ps], self._folders()[ps]
        with self._line_to(ps, keeper) as line:
            folder = self._asked(line, keeper, "folder", {"folder": COPIES})["path"]
            for file, sha256 in files.items():
                source = f"{place}/model.ckpt-{step}.{file.suffix}"
                aside = f"{folder}/model.ckpt-{step}{UNFINISHED}.{file.suffix}"
                call_within(_SECONDS_FOR_A_FILE, partial(line.copy, ps, source, keeper, aside))
                asked = {**_check(step, {file: sha256}), "folder": COPIES}
                if problems := self._asked(line, keeper, "check", asked)["problems"]:
                    raise DamagedError(problems[file.suffix])
            self._asked(line, keeper, "keep", {"steps": list(steps), "folder": COPIES})

    def _at_home(self, checkpoint: Checkpoint) -> dict[str, dict[RowFile, str]]:
        """Return for each ps the files that it reads: those that it wrote, if there are as many ps."""
        homes: dict[str, dict[RowFile, str]] = {ps: {} for ps in self._ps}
        if homes:
            for file, sha256 in (pair for table in checkpoint.tables for pair in table.sha256.items()):
                homes[self._ps[file.part % len(homes)]][file] = sha256
        return homes

    def _fetched(self, ps: str, file: RowFile, asked: Asked) -> bool:
        """Bring a good file to the ps that needs it, from any task that has one; return whether any has."""
        name, aside = (f"model.ckpt-{asked['step']}{mark}.{file.suffix}" for mark in ("", UNFINISHED))
        place = self._folders()[ps]
        for line, task, folder in self._sources():
            with suppress(tf.errors.NotFoundError):  # it may be elsewhere
                line.copy(task, f"{folder}/{name}", ps, f"{place}/{aside}")
                if not self._asked(line, ps, "check", asked)["problems"]:
                    return True
        return False

    def _sources(self) -> Iterator[tuple[_Line, str, str]]:
        """Yield a line to a task, the task, and a folder of it in which files of tables may be."""
        if self._directory is not None:
            for name in (CHECKPOINTS, COPIES):
                yield self._own_line, CHIEF, str(self._directory.with_name(name))
        for name in (CHECKPOINTS, COPIES):
            for ps, folder in self._folders(name).items():
                yield self._own_line, ps, folder
        for task in self._cluster.listeners:
            if task in self._ps or self._cluster.device_of(task) == self._cluster.device:
                continue
            if not probe(self._cluster.address_of(task)):
                with self._line_to(*self._ps, task) as line:
                    yield line, task, self._asked(line, task, "folder", {"folder": COPIES})["path"]

    @property
    def _own_line(self) -> _Line:
        with self._lock:
            # A chief that was started again may find ps that hold the run, and nothing to restore.
            if self._line is None:
                self._line = _Line(self._cluster, self._target, self._ps)
            return self._line

    @contextmanager
    def _line_to(self, *tasks: str) -> Iterator[_Line]:
        line = _Line(self._cluster, self._target, tasks)
        try:
            yield line
        finally:
            line.close()

    def _folders(self, folder: str = CHECKPOINTS) -> dict[str, str]:
        """Return the path that a folder has at each ps."""
        answers = self._ask("folder", lambda _: {"folder": folder})
        return {ps: answer["path"] for ps, answer in zip(self._ps, answers, strict=True)}

    def _described(self, part: int) -> list[dict[str, object]]:
        """Return what a ps has to know to write its parts."""
        return [
            {
                "table": table.name,
                "variable": table.pieces[part].op.name,
                "dtype": table.dtype.base_dtype.name,
                "shape": table.shape.as_list(),
                "part": part,
                "parts": len(table.pieces),
            }
            for table in self._tables
        ]

    def _saved(self, table: TableVariable, answers: Sequence[Asked]) -> SavedTable:
        rows = Rows(table.name, table.dtype.base_dtype.name, tuple(table.shape.as_list()), len(table.pieces))
        total = sum(int(answer["sums"].get(table.name, 0)) for answer in answers) % 2**64
        hashes = {
            file: sha256
            for part, answer in enumerate(answers)
            for file, sha256 in zip(rows.files_of(part), answer["sha256"].get(table.name, []), strict=True)
        }
        return SavedTable(rows, total, hashes)

    def _ask(self, what: str, more: Callable[[str], Asked] = lambda _: {}) -> Sequence[Asked]:
        """Ask all ps at once to do something; return their answers."""
        if not self._ps:
            return []
        with self._lock:
            line = self._own_line
            return self._with_all(lambda ps: line.ask(ps, what, more(ps)))

    def _asked(self, line: _Line, task: str, what: str, more: Asked) -> Asked:
        """Ask one task to do something; return its answer. Raises CallTookTooLong."""
        with self._lock if task in self._ps else self._lock_of_others:
            return call_within(_SECONDS_FOR_A_FILE, lambda: line.ask(task, what, more))

    def _with_all(self, do: Callable[[str], Result]) -> list[Result]:
        """Do something for each ps, all at once."""
        with ThreadPoolExecutor(max(1, len(self._ps))) as pool:
            return list(pool.map(do, self._ps))


def _check(step: int, files: Mapping[RowFile, str]) -> dict[str, Any]:
    """Return what a task is to check of these files."""
    return {
        "step": step, "files": [[file.suffix, file.size, sha256] for file, sha256 in files.items()]
    }  # fmt: skip
