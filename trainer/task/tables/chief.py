"""The chief's part in saving and restoring tables: each ps writes and reads the rows that it holds.

The chief asks all ps at once (local_files.py), and makes the manifest from their answers. If a ps needs a
file that it does not have, the file comes straight from a task that has it, one file after the other.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

import tensorflow as tf

from trainer.contract.task_names import CHIEF
from trainer.coordination.bounded_calls import call_within
from trainer.engine.training import TrainingGraph
from trainer.model.checkpoints import (
    CHECKPOINTS,
    COPIES,
    UNFINISHED,
    Checkpoint,
    DamagedError,
    NotFinite,
    bring_to_disk,
    link,
)
from trainer.model.pieces import TableVariable
from trainer.model.tables.checkpoint_files import RowFile, RowLayout, SavedTable, file_problem, manifest_of
from trainer.model.tables.restoring import RowLoading
from trainer.process.port_probes import probe
from trainer.task.tables.local_files import Fields
from trainer.task.task_line import TaskLine

# How long it may take to send one file, or to read it back.
_SECONDS_FOR_A_FILE = 60.0
# A restore reads the files of whole parts, then all deltas. So a checkpoint has at most this many deltas, and
# together they have at most this share of the bytes of the whole parts.
MOST_DELTAS = 20
_SHARE_OF_DELTAS = 0.5

Result = TypeVar("Result")


@dataclass(frozen=True)
class _Former:
    """The checkpoint on which the next save is based: each ps marks the rows that change after it.

    Attributes:
        step: the checkpoint's global step.
        tables: the tables in the checkpoint.
        name: the global step and the fingerprint, which identify the checkpoint to the ps.

    """

    step: int
    tables: Sequence[SavedTable]
    name: str

    @property
    def next_delta(self) -> int:
        """The number, from 1, of the next save's delta: files with only the rows that changed.

        It is 0 if the next save is to write all rows: after 20 deltas, or if the deltas together have more
        than half the bytes of the files with all rows.
        """
        last = max(table.last_delta for table in self.tables)
        whole = sum(file.size for table in self.tables for file in table.sha256)
        changed = sum(file.size for table in self.tables for file in table.deltas)
        return 0 if last >= MOST_DELTAS or changed > _SHARE_OF_DELTAS * whole else last + 1


class TableSaves:
    """Saves and restores the tables of a model; without tables it does nothing.

    Its methods raise tf.errors.OpError if a ps is lost, and DamagedError if a ps answers that it could not do
    what the chief asked.

    Attributes:
        sums: {ps: {variable: sum of the variable's rows on the ps, modulo 2**64}} of the last finished save.
        record_fields: {"rows_written": number of rows that the last finished save wrote, "deltas": number of
            deltas of its checkpoint, 0 if it wrote all rows}; {} before the first save, and without tables.

    """

    def __init__(self, graph: TrainingGraph, directory: Path | None, target: str) -> None:
        """Add the operations to the chief's graph, without connecting.

        `directory` is the folder of the chief's checkpoints (None: there is none), `target` the address of
        the chief's server.
        """
        self._cluster, self._directory = graph.cluster, directory
        self._tables = [table for table in graph.variables if isinstance(table, TableVariable)]
        devices = self._cluster.ledger_devices if self._tables else ()
        names = [CHIEF] if self._cluster.is_local else [f"ps{ps}" for ps in range(len(devices))]
        self._ps = names[: len(devices)]
        with graph.graph.as_default():
            self._loading = {
                ps: RowLoading(self._tables, f"{device}/device:CPU:0")
                for ps, device in zip(self._ps, devices, strict=True)
            }
        self.sums: Mapping[str, Mapping[str, int]] = {}
        self._needs_sums = graph.settings.ps_recovery == "partial"
        self._line: TaskLine | None = None
        self._target = target
        self._former: _Former | None = None
        # The number of the delta that the present save writes; 0 if it writes all rows.
        self._delta = 0
        # (ps, keeper) -> (global step of the last checkpoint that was copied, {file: SHA-256}).
        self._copied: dict[tuple[str, str], tuple[int, Mapping[RowFile, str]]] = {}
        # (path of the last checkpoint whose files were fetched to this host, {file: SHA-256}).
        self._fetched: tuple[Path, Mapping[RowFile, str]] = (Path(), {})
        self.record_fields: dict[str, int] = {}
        # One thread at a time asks, so that no other question makes a pause of the pushes longer.
        self._lock, self._lock_of_others = RLock(), RLock()

    @property
    def has_tables(self) -> bool:
        """Whether the model has tables."""
        return bool(self._tables)

    def drop_connection(self) -> None:
        """Close the connection to the ps, which may have been lost; the next question opens a new one.

        The next save then writes all rows.
        """
        line, self._line = self._line, None
        self._former = None
        if line is not None:
            line.close()

    @contextmanager
    def blocked_pushes(self) -> Iterator[None]:
        """Return a context in which no push of a worker changes a variable on a ps.

        Raises DamagedError at its end if a ps did not block pushes for the whole time.
        """
        with self._lock:
            delta = self._former.next_delta if self._former else 0
            since = self._former.name if self._former and delta else ""
            answers = self._ask("hold", lambda ps: {"since": since, **self._description(ps)})
            self._delta = delta if all(answer["follows"] for answer in answers) else 0
            try:
                yield
            finally:
                answers = self._ask("release")
            if not all(answer["held"] for answer in answers):
                raise DamagedError("a ps did not hold up the workers' pushes for as long as the save took")

    def begin_writing(self, step: int) -> None:
        """Let each ps begin to write its rows as they are now, beside training; return at once.

        Call this within `blocked_pushes`. All ps write only the rows that changed since the last checkpoint,
        if all of them know these rows; else all rows. `step` is the global step of the checkpoint.
        """
        self._ask("cut", lambda ps: {"step": step, "delta": self._delta, **self._description(ps)})

    def finish(self, step: int) -> str:
        """Wait until each ps has its rows of step `step` on disk; return the manifest, or "" without tables.

        `begin_writing` must have been called for this step. Raises NotFinite if a row has a number that is
        not finite.
        """
        former, self._former = self._former if self._delta else None, None
        if not self.has_tables:
            return ""
        manifest = manifest_of(former.step, former.tables) if former else ""
        question = {"step": step, "former": manifest, "former_step": former.step if former else 0}
        answers = self._ask("finish", lambda ps: {**question, "part": self._ps.index(ps)})
        if not_finite := [name for answer in answers for name in answer["not_finite"]]:
            raise NotFinite(f"{not_finite[0]} is not finite")
        answered_sums = dict(zip(self._ps, (answer["sums"] for answer in answers), strict=True))
        # With a delta, the answers have the changes of the sums.
        before = self.sums if former else {}
        self.sums = {
            ps: {name: (before.get(ps, {}).get(name, 0) + int(own)) % 2**64 for name, own in sums.items()}
            for ps, sums in answered_sums.items()
        }
        former_tables = {table.layout.table: table for table in former.tables} if former else {}
        rows = sum(count for answer in answers for count in answer["rows"].values())
        self.record_fields = {"rows_written": rows, "deltas": self._delta}
        return manifest_of(step, [self._saved(table, answers, former_tables) for table in self._tables])

    def base_next_save_on(self, step: int, tables: Sequence[SavedTable], fingerprint: str) -> None:
        """Let the next save write only the rows that change after this checkpoint, whose values the ps have.

        `step`, `tables` and `fingerprint` are the checkpoint's. If it has other tables or is of another
        number of ps, do nothing; the next save then writes all rows.
        """
        are_same = {saved.layout.table for saved in tables} == {table.name for table in self._tables}
        if tables and are_same and tables[0].layout.parts == len(self._ps):
            former = _Former(step, tables, f"{step} {fingerprint}")
            self._ask("follow", lambda _: {"since": former.name})
            self._former = former

    def forget(self) -> None:
        """Let each ps stop a save that is going on, and mark all rows as not changed.

        Call this before rows are set. The next save then writes all rows, unless `base_next_save_on` is
        called.
        """
        self._former = None
        self._ask("forget", self._description)

    def keep(self, steps: Sequence[int]) -> None:
        """Let each ps remove the table files of all checkpoints whose global step is not in `steps`."""
        self._ask("keep", lambda _: {"steps": list(steps), "folder": CHECKPOINTS})

    def fetch_missing_files(self, checkpoint: Checkpoint, ps: Collection[str] | None = None) -> str:
        """Fetch the checkpoint's table files that are missing or damaged on a ps from any task that has them.

        Return "" if the given ps (default: all) then have all files that they need; else, in words, the first
        two files that no task has, or why a task could not do it.
        """
        try:
            return self._fetch_missing(checkpoint, ps)
        except DamagedError as error:
            return str(error)

    def _fetch_missing(self, checkpoint: Checkpoint, only: Collection[str] | None) -> str:
        wanted = self._files_of(only, checkpoint)
        answers = self._ask("check", lambda ps: _check_question(checkpoint.global_step, wanted[ps]))
        problems = []
        for ps, answer in zip(self._ps, answers, strict=True):
            for file in [file for file in wanted[ps] if file.suffix in answer["problems"]]:
                question = _check_question(checkpoint.global_step, {file: wanted[ps][file]})
                if not self._fetch_from_any(ps, file, question):
                    problems.append(f"{ps}: {answer['problems'][file.suffix]}")
        return "; ".join(problems[:2])

    def restore(
        self, session: tf.compat.v1.Session, checkpoint: Checkpoint, ps: Collection[str] | None = None
    ) -> None:
        """Set the rows on the given ps (default: all) to the rows of a checkpoint whose files are complete.

        Each ps reads its files from its own disk; return when all rows are set. With `ps`, the checkpoint
        must have been saved with the present number of ps, and the next save writes all rows.
        """
        paths = {ps: f"{folder}/{checkpoint.path.name}" for ps, folder in self._folders().items()}
        wanted = self._files_of(ps, checkpoint)
        self._with_all(lambda ps: self._loading[ps].run_all(session, paths[ps], wanted[ps]))
        # Otherwise the next save writes all rows: some ps went on, or the sums of each ps are needed.
        if ps is None and not self._needs_sums:
            self.base_next_save_on(checkpoint.global_step, checkpoint.tables, checkpoint.fingerprint)

    def fetch_to_chief(self, checkpoint: Checkpoint) -> None:
        """Fetch all table files beside the chief's checkpoint, so that it can be read without the ps.

        Files that are there and good are not fetched again. Raises OSError, and DamagedError if a file
        arrives damaged.
        """
        folders, ps_files, (former, fetched) = self._folders(), self._ps_files(checkpoint), self._fetched
        for ps, files in ps_files.items():
            for file, sha256 in files.items():
                path = Path(f"{checkpoint.path}.{file.suffix}")
                if fetched.get(file) == sha256:
                    with suppress(OSError):  # the former file was removed
                        link(Path(f"{former}.{file.suffix}"), path)
                if not file_problem(path, file.size, sha256):
                    continue  # the file is here already, or the ps is on this host
                aside = Path(f"{checkpoint.path}{UNFINISHED}.{file.suffix}")
                self._own_line.copy(ps, f"{folders[ps]}/{path.name}", CHIEF, str(aside))
                bring_to_disk(aside)
                if problem := file_problem(aside, file.size, sha256):
                    raise DamagedError(f"from {ps}: {problem}")
                aside.rename(path)
        bring_to_disk(checkpoint.path.parent)
        hashes = {file: sha256 for files in ps_files.values() for file, sha256 in files.items()}
        self._fetched = checkpoint.path, hashes

    def keepers(self, copies: int) -> list[tuple[str, str]]:
        """Return pairs (ps, a task that keeps copies of the ps's table files), by ps; [] without tables.

        Each ps has at most `copies` - 1 pairs: `copies` is the number of hosts that have a file, the ps's own
        host included.
        """
        return [(ps, keeper) for ps in self._ps for keeper in self._cluster.keepers(copies, ps)]

    def copy(self, checkpoint: Checkpoint, ps: str, keeper: str, steps: Sequence[int]) -> None:
        """Copy a ps's table files of a checkpoint to the task `keeper`; return once they are checked there.

        The keeper then removes the table files of all checkpoints whose global steps are not in `steps`.
        Raises DamagedError if a file arrives damaged, and CallTookTooLong.
        """
        step, files, place = checkpoint.global_step, self._ps_files(checkpoint)[ps], self._folders()[ps]
        former, copied = self._copied.pop((ps, keeper), (step, {}))
        shared = [file for file, sha256 in files.items() if copied.get(file) == sha256]
        with self._line_to(ps, keeper) as line:
            folder = self._ask_task(line, keeper, "folder", {"folder": COPIES})["path"]
            former_files = {"former_step": former, "suffixes": [file.suffix for file in shared]}
            self._ask_task(line, keeper, "share", {"step": step, "folder": COPIES, **former_files})
            for file, sha256 in ((file, files[file]) for file in files if file not in shared):
                source = f"{place}/model.ckpt-{step}.{file.suffix}"
                aside = f"{folder}/model.ckpt-{step}{UNFINISHED}.{file.suffix}"
                question = {**_check_question(step, {file: sha256}), "folder": COPIES}
                call_within(_SECONDS_FOR_A_FILE, partial(line.copy, ps, source, keeper, aside))
                if problems := self._ask_task(line, keeper, "check", question)["problems"]:
                    raise DamagedError(problems[file.suffix])
            self._ask_task(line, keeper, "keep", {"steps": list(steps), "folder": COPIES})
        self._copied[ps, keeper] = step, files

    def _ps_files(self, checkpoint: Checkpoint) -> dict[str, dict[RowFile, str]]:
        """Return {ps: {table file: SHA-256}}: the files of the checkpoint that each ps reads.

        The files of the table's part p belong to ps number p mod the number of ps. If the checkpoint was
        saved with the present number of ps, these are the files that the ps itself wrote.
        """
        files: dict[str, dict[RowFile, str]] = {ps: {} for ps in self._ps}
        if files:
            for file, sha256 in (pair for table in checkpoint.tables for pair in table.files.items()):
                files[self._ps[file.part % len(files)]][file] = sha256
        return files

    def _files_of(
        self, only: Collection[str] | None, checkpoint: Checkpoint
    ) -> dict[str, dict[RowFile, str]]:
        """Return the same as `_ps_files`, but {} for each ps that is not in `only`; None means all ps."""
        files = self._ps_files(checkpoint)
        return files if only is None else {ps: files[ps] if ps in only else {} for ps in files}

    def _fetch_from_any(self, ps: str, file: RowFile, question: Fields) -> bool:
        """Copy a file to the ps that needs it, from the first task with a good one; return False if none has.

        `question` asks the ps to check the file.
        """
        name, aside = (f"model.ckpt-{question['step']}{mark}.{file.suffix}" for mark in ("", UNFINISHED))
        place = self._folders()[ps]
        for line, task, folder in self._sources():
            with suppress(tf.errors.NotFoundError):  # another task may have the file
                line.copy(task, f"{folder}/{name}", ps, f"{place}/{aside}")
                if not self._ask_task(line, ps, "check", question)["problems"]:
                    return True
        return False

    def _sources(self) -> Iterator[tuple[TaskLine, str, str]]:
        """Yield (line to a task, the task, path of a folder there) for each folder that may have table files.

        The order: the chief's folders, those of all ps, then those of other tasks that answer.
        """
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
                    yield line, task, self._ask_task(line, task, "folder", {"folder": COPIES})["path"]

    @property
    def _own_line(self) -> TaskLine:
        with self._lock:
            # Opened only when needed: a restarted chief whose ps still hold the run restores nothing.
            if self._line is None:
                self._line = TaskLine(self._cluster, self._target, self._ps)
            return self._line

    @contextmanager
    def _line_to(self, *tasks: str) -> Iterator[TaskLine]:
        line = TaskLine(self._cluster, self._target, tasks)
        try:
            yield line
        finally:
            line.close()

    def _folders(self, folder: str = CHECKPOINTS) -> dict[str, str]:
        """Return {ps: path of the folder `folder` in the ps's run directory}; each is created if missing."""
        answers = self._ask("folder", lambda _: {"folder": folder})
        return {ps: answer["path"] for ps, answer in zip(self._ps, answers, strict=True)}

    def _description(self, ps: str) -> dict[str, object]:
        """Return {"tables": [..]}, which describes to a ps its parts of all tables and of their slots."""
        part = self._ps.index(ps)
        with_slots: dict[str, list[TableVariable]] = {}
        for table in self._tables:
            with_slots.setdefault(table.name.partition("/")[0], []).append(table)
        return {
            "tables": [
                {
                    "name": variables[0].pieces[part].op.name,
                    "part": part,
                    "rows": variables[0].pieces[part].shape[0],
                    "variables": [
                        {
                            "name": table.pieces[part].op.name,
                            "table": table.name,
                            "dtype": table.dtype.base_dtype.name,
                            "shape": table.shape.as_list(),
                            "parts": len(table.pieces),
                        }
                        for table in variables
                    ],
                }
                for variables in with_slots.values()
            ]
        }

    def _saved(
        self, table: TableVariable, answers: Sequence[Fields], former: Mapping[str, SavedTable]
    ) -> SavedTable:
        rows = RowLayout(
            table.name, table.dtype.base_dtype.name, tuple(table.shape.as_list()), len(table.pieces)
        )
        total = sum(int(answer["sums"][table.name]) for answer in answers)

        def hashes(layout: RowLayout) -> dict[RowFile, str]:
            """Return {new file of a variable, or of positions: SHA-256}."""
            hash_of = {}
            for part, answer in enumerate(answers):
                count = answer["rows"][table.name.partition("/")[0]]
                files = layout.delta_files(part, self._delta, count) if self._delta else layout.files_of(part)
                hash_of.update({file: answer["sha256"][file.suffix] for file in files})
            return hash_of

        if not self._delta:
            return SavedTable(rows, total % 2**64, hashes(rows))
        before = former[table.name]
        return SavedTable(
            rows,
            (before.total + total) % 2**64,
            before.sha256,
            {**before.deltas, **hashes(rows)},
            {**before.positions, **hashes(rows.positions)},
        )

    def _ask(self, what: str, more: Callable[[str], Fields] = lambda _: {}) -> Sequence[Fields]:
        """Ask all ps at once to do `what`; return their answers, in the order of the ps; [] without tables.

        `more(ps)` returns the other fields of the question to this ps.
        """
        if not self._ps:
            return []
        with self._lock:
            line = self._own_line
            return self._with_all(lambda ps: line.ask(ps, what, more(ps)))

    def _ask_task(self, line: TaskLine, task: str, what: str, more: Fields) -> Fields:
        """Ask one task, by `line`, to do `what`; return the answer. `more` has further fields.

        Raises CallTookTooLong after 60 s, and DamagedError if the answer is an error.
        """
        with self._lock if task in self._ps else self._lock_of_others:
            return call_within(_SECONDS_FOR_A_FILE, lambda: line.ask(task, what, more))

    def _with_all(self, do: Callable[[str], Result]) -> list[Result]:
        """Call `do(ps)` for all ps at once; return the results in the order of the ps, when all have ended.

        If calls raise, raise the exception of the first such ps.
        """
        with ThreadPoolExecutor(max(1, len(self._ps))) as pool:
            return list(pool.map(do, self._ps))


def _check_question(step: int, files: Mapping[RowFile, str]) -> dict[str, Any]:
    """Return the fields of a question that asks to check `files`, {file: SHA-256}, of global step `step`.

    They are {"step": `step`, "files": [[suffix, size, SHA-256], ..]}.
    """
    return {
        "step": step, "files": [[file.suffix, file.size, sha256] for file, sha256 in files.items()]
    }  # fmt: skip
