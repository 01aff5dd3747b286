"""Checkpoints in a folder of one host: writing, reading, restoring and removing them.

No shared file system is needed. The chief fetches the values from every ps and writes one whole file beside
training; to restore, it reads that file and assigns the values. File names are TensorFlow's:
`model.ckpt-<global step>.*` and the state file `checkpoint`. A checkpoint is first written under another
name. It gets its own name once it is on disk and reads back as it was written. The rows of tables are in
files of their own (tables/checkpoint_files.py).
"""

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.contract.exit_codes import CONFIGURATION, INPUT
from trainer.coordination.ledger import RUN_OVER
from trainer.coordination.ledger_parts import COUNTERS, FIRST_WORKER, GLOBAL_STEP, STOP_CODE
from trainer.model.fingerprint import fingerprint_of
from trainer.model.pieces import (
    AnyVariable,
    TableVariable,
    holder_of,
    name_of,
    pieces_of,
    split_array,
    value_of,
)
from trainer.model.tables.checkpoint_files import (
    MANIFEST,
    TABLES,
    SavedTable,
    sha256_of_text,
    tables_in,
    whole_files_of,
)
from trainer.process.failure import TaskFailure

v1 = tf.compat.v1

# The optimizer of each further ps has its own powers of beta, "beta1_power_1" and so on, and its own count of
# steps. Older checkpoints, and checkpoints of a run with fewer ps, hold only "beta1_power"; the values are
# equal.
_OF_ANOTHER_PS = re.compile(r"(beta[12]_power|adam_steps)_[0-9]+")
_DAMAGED = "damaged-"
# Folders in a run's directory: the checkpoints that the task itself saved, and copies of another task's.
CHECKPOINTS, COPIES = "checkpoints", "copies"
_INDEX_FILE = re.compile(r"model\.ckpt-(\d+)\.index")
# Part of the names of files that are not complete; TensorFlow itself uses the same.
UNFINISHED = ".tempstate"
Values = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint.

    Attributes:
        path: the path of its files, without a suffix, such as "/checkpoints/model.ckpt-1500".
        global_step: the global step.
        values: {variable's name: value}; tables are not in it.
        tables: the tables, whose rows are in files of their own, perhaps on other hosts; () if there are
            none.

    """

    path: Path
    global_step: int
    values: Values
    tables: Sequence[SavedTable] = ()

    @property
    def fingerprint(self) -> str:
        """The fingerprint of everything in the checkpoint except the counters; tables are included."""
        return fingerprint_of(self.values, self.tables)


class DamagedError(ValueError):
    """A checkpoint does not read back as it was written."""


# A function that reads a checkpoint from another host into a folder, under the name of an unfinished one.
Fetch = Callable[["CheckpointFolder"], None]


class NotFinite(ValueError):  # noqa: N818 - a property of the model, and no error of the program
    """A value to be saved is nan or infinite; a checkpoint never holds a diverged model."""


def tensors_to_save(variables: Sequence[AnyVariable], device: str | None) -> dict[str, tf.Tensor]:
    """Return {variable's name: tensor with the whole value}, to be fetched for `CheckpointFolder.write`.

    Tables are left out, because each ps saves its own rows. The tensors are on `device`: the CPU of the
    process that fetches them, because TensorFlow has a fast path to it. With None, TensorFlow chooses; this
    is for a process that is a client of another process's server.
    """
    tensors = {}
    for variable in variables:
        if not isinstance(variable, TableVariable):
            with tf.device(device):
                tensors[name_of(variable)] = tf.identity(value_of(variable))
    return tensors


class RestoreOperation:
    """The operations that set variables to a checkpoint's values; tables/restoring.py does it for tables."""

    def __init__(self, variables: Sequence[AnyVariable]) -> None:
        self._tables = [variable for variable in variables if isinstance(variable, TableVariable)]
        others = [variable for variable in variables if not isinstance(variable, TableVariable)]
        self._variables = {name_of(variable): variable for variable in others}
        pieces = [piece for variable in others for piece in pieces_of(variable)]
        self._holders = {piece.op.name: holder_of(piece) for piece in pieces}
        self._assignments = {
            piece.op.name: (placeholder, piece.assign(placeholder).op)
            for piece in pieces
            for placeholder in [v1.placeholder(piece.dtype, piece.shape)]
        }

    def run(
        self, session: tf.compat.v1.Session, checkpoint: Checkpoint, ps: Collection[str] | None = None
    ) -> None:
        """Set the variables on the given ps (default: all) to their values in `checkpoint`, but no tables.

        The stop code in the counters becomes 0. If the numbers of workers differ, the step counts of new
        workers are 0, and the counts of missing workers are dropped. Raises TaskFailure (`configuration`) if
        a variable or table is missing in the checkpoint, or has another type or shape there, and
        tf.errors.OpError.
        """
        values = self._values_in(checkpoint)
        if COUNTERS in values:
            values[COUNTERS] = values[COUNTERS].copy()
            values[COUNTERS][STOP_CODE] = 0
        feeds = {}
        for name, variable in self._variables.items():
            for piece, value in zip(pieces_of(variable), split_array(variable, values[name]), strict=True):
                feeds[self._assignments[piece.op.name][0]] = value
        assignments = [
            assignment
            for name, (_, assignment) in self._assignments.items()
            if ps is None or self._holders[name] in ps
        ]
        session.run(assignments, feeds)

    def _values_in(self, checkpoint: Checkpoint) -> dict[str, npt.NDArray[np.generic]]:
        values, differences = {}, []
        for name, variable in self._variables.items():
            value = _value_in(checkpoint, name)
            if name == COUNTERS and value is not None and value.ndim == 1:
                value = _counters_of(value, variable.shape.num_elements() - FIRST_WORKER)
            needed = f"{variable.dtype.base_dtype.name} of shape {tuple(variable.shape)}"
            found = "nothing" if value is None else f"{value.dtype.name} of shape {value.shape}"
            if value is None or found != needed:
                differences.append(f"{found} for {name}, this run needs {needed}")
            else:
                values[name] = value
        layouts = {table.layout.table: table.layout for table in checkpoint.tables}
        for table in self._tables:
            needed = f"{table.dtype.base_dtype.name} of shape {tuple(table.shape)}"
            layout = layouts.get(table.name)
            found = f"{layout.dtype} of shape {layout.shape}" if layout else "nothing"
            if found != needed:
                differences.append(f"{found} for {table.name}, this run needs {needed}")
        if differences:
            holds = f"checkpoint {checkpoint.path} holds {'; '.join(differences)}"
            why = "it is of another model"
            remedy = "take the settings it was saved with, or another run directory"
            raise TaskFailure(CONFIGURATION, f"{holds}: {why}; {remedy}")
        return values


class CheckpointFolder:
    """A folder with checkpoints of a run, which keeps the newest `keep`, and sometimes one more."""

    def __init__(self, directory: Path, keep: int) -> None:
        """Create the folder if it is missing; remove the files of an interrupted save. Raises OSError."""
        directory.mkdir(parents=True, exist_ok=True)
        self._keep = keep
        self.directory = directory
        self.remove_unfinished()

    def unfinished(self, step: int) -> Path:
        """Return the path, without a suffix, of the checkpoint of global step `step` before `accept`."""
        return self.directory / f"model.ckpt-{step}{UNFINISHED}"

    def remove_unfinished(self) -> None:
        """Remove the files of interrupted saves. Raises OSError."""
        for leftover in self.directory.glob(f"*{UNFINISHED}*"):
            leftover.unlink(missing_ok=True)

    def write(self, values: Values, manifest: str = "") -> tuple[Path, str]:
        """Write a checkpoint, accept it as `accept` does, and return (its path, its fingerprint).

        `values` is {variable's name: value}; the global step in its counters is in the path, which has no
        suffix. `manifest` is the text that lists the files of the checkpoint's tables, which are complete
        already; "" if the model has no tables. Raises NotFinite before anything is written, DamagedError,
        OSError and tf.errors.OpError.
        """
        for name, value in values.items():
            if not np.all(np.isfinite(value)):
                raise NotFinite(f"{name} is not finite")
        step = int(values[COUNTERS][GLOBAL_STEP])
        fingerprint = fingerprint_of(values, tables_in(manifest, step) if manifest else ())
        values = with_manifest(values, manifest)
        if manifest:
            Path(f"{self.unfinished(step)}.{MANIFEST}").write_text(manifest, encoding="utf-8")
        names = list(values)
        with tf.device("/device:CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=str(self.unfinished(step)),
                tensor_names=names,
                shape_and_slices=[""] * len(names),
                tensors=[values[name] for name in names],
            )
        return self.accept(step, fingerprint), fingerprint

    def accept(self, step: int, fingerprint: str | None) -> Path:
        """Check the unfinished checkpoint of `step`, and give it its final name; return that path.

        The path has no suffix. The files are brought to disk and read back; DamagedError is raised if they
        are damaged, or have another fingerprint (None: any is good). An earlier checkpoint of this step is
        replaced. Then only the newest `keep` checkpoints up to `step` stay; those of later steps are removed.
        Raises OSError.
        """
        unfinished = self.unfinished(step)
        path = unfinished.with_name(unfinished.name.removesuffix(UNFINISHED))
        parts = ("data-*", MANIFEST, "index")
        files = [file for part in parts for file in self.directory.glob(f"{unfinished.name}.{part}")]
        for file in files:
            bring_to_disk(file)
        checkpoint, problem = read_checkpoint(unfinished)
        if checkpoint is None:
            raise DamagedError(problem)
        if checkpoint.global_step != step:
            raise DamagedError(f"it holds global step {checkpoint.global_step}")
        if fingerprint is not None and (read := checkpoint.fingerprint) != fingerprint:
            raise DamagedError(f"{fingerprint} was written, {read} is read")
        # A checkpoint counts once it has an index. So the index is renamed last, and the index of an earlier
        # checkpoint of this step is removed first.
        Path(f"{path}.index").unlink(missing_ok=True)
        for file in files:
            file.rename(f"{path}{file.name.removeprefix(unfinished.name)}")
        bring_to_disk(self.directory)
        self._remove_others(step)
        return path

    def newest_good(
        self,
        report_damaged: Callable[[Path, str], None],
        copies: Mapping[int, Sequence[Fetch]] | None = None,
        tables_problem: Callable[[Checkpoint], str] = lambda _: "",
    ) -> Checkpoint | None:
        """Return the newest good checkpoint in this folder or in `copies`; None if there are none at all.

        Raises TaskFailure (`input`) if checkpoints are there but all are damaged, now or at an earlier call.
        Raises tf.errors.OpError if another host is lost.

        Args:
            report_damaged: called with the path of each checkpoint that cannot be read or fetched, and what
                is wrong. Such checkpoints of this folder are renamed to `damaged-*`.
            copies: {global step: functions that fetch a copy of this step from another host}. A copy is
                fetched only if this folder has no good checkpoint of that step or of a later step.
            tables_problem: returns what is wrong with the files of a checkpoint's tables; "" if nothing is.

        """
        copies, own = copies or {}, {step_in(path) for path in checkpoint_paths(self.directory)}
        refused = []
        for step in sorted(own | copies.keys(), reverse=True):
            path = self.directory / f"model.ckpt-{step}"
            own_first: list[Fetch | None] = [None] if step in own else []
            for fetch in (*own_first, *copies.get(step, ())):
                checkpoint, problem = read_checkpoint(path) if fetch is None else self._fetch(step, fetch)
                if checkpoint is not None and not (problem := tables_problem(checkpoint)):
                    return checkpoint
                report_damaged(path, problem)
                if fetch is not None:
                    refused.append(path.name)
                # Later saves may have lower steps; then the damaged checkpoint must not count as the newest.
                for file in self.directory.glob(f"{path.name}.*"):
                    file.rename(file.with_name(f"{_DAMAGED}{file.name}"))
        names = (file.name.split(".") for file in self.directory.glob(f"{_DAMAGED}*"))
        damaged = {".".join(parts[:2]) for parts in names} | set(refused)
        if damaged:
            what = f"all checkpoints in {self.directory} are damaged ({', '.join(sorted(damaged))})"
            remedy = "put back a whole one without that prefix, or begin anew with another run"
            raise TaskFailure(INPUT, f"{what}, so the run cannot go on: {remedy}")
        return None

    def _fetch(self, step: int, fetch: Fetch) -> tuple[Checkpoint | None, str]:
        """Fetch and accept a checkpoint; return (checkpoint, ""), or (None, the reason) if it is damaged.

        An OSError is such a reason, too. Raises tf.errors.OpError.
        """
        try:
            fetch(self)
            return read_checkpoint(self.accept(step, None))
        except (DamagedError, OSError) as error:
            self.remove_unfinished()
            return None, str(error)

    def _remove_others(self, step: int) -> None:
        """Remove all checkpoints but those of `_to_keep`, and write TensorFlow's state file. Raises OSError.

        Checkpoints of steps later than `step` are removed, too: the run went on from an earlier checkpoint,
        and left them behind.
        """
        paths = checkpoint_paths(self.directory)
        kept = self._to_keep([path for path in paths if step_in(path) <= step])
        v1.train.update_checkpoint_state(
            str(self.directory),
            model_checkpoint_path=kept[-1].name,
            all_model_checkpoint_paths=[path.name for path in kept],
        )
        for path in set(paths) - set(kept):
            for file in self.directory.glob(f"{path.name}.*"):
                file.unlink(missing_ok=True)

    def _to_keep(self, paths: Sequence[Path]) -> list[Path]:
        """Return the newest `keep` of `paths`, oldest first, and sometimes one older checkpoint before them.

        Checkpoints with deltas share the files of whole parts, which may be damaged. If all of the newest
        share them, the last older checkpoint with other files is kept, too; but not if `keep` is 1.
        """
        newest, others = list(paths[-self._keep :]), paths[: -self._keep]
        shared = [whole_files_of(path) for path in newest]
        if self._keep == 1 or not shared[-1] or shared.count(shared[-1]) < len(shared):
            return newest
        return [*[path for path in others if whole_files_of(path) != shared[-1]][-1:], *newest]


def with_manifest(values: Values, manifest: str) -> Values:
    """Return `values`; if `manifest` is not "", its SHA-256 is added as the value of `psfleet/tables`."""
    sha256 = np.frombuffer(bytes.fromhex(sha256_of_text(manifest)), np.uint8)
    return {**values, TABLES: sha256} if manifest else values


def checkpoint_paths(directory: Path) -> list[Path]:
    """Return the paths, without a suffix, of a folder's finished checkpoints, newest last; [] if none.

    Raises OSError, also if the folder is missing.
    """
    matches = (_INDEX_FILE.fullmatch(file.name) for file in directory.iterdir())
    steps = sorted(int(match[1]) for match in matches if match is not None)
    return [directory / f"model.ckpt-{step}" for step in steps]


def bring_to_disk(path: Path) -> None:
    """Write a file, or the entries of a folder, to disk; return once they are there. Raises OSError.

    The next reader of the file then reads from the disk, and not from the system's page cache.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def link(file: Path, path: Path) -> None:
    """Make `path` a hard link to `file`, replacing what was there. Raises OSError.

    Nothing is done if the two paths are equal.
    """
    if file == path:
        return
    path.unlink(missing_ok=True)
    path.hardlink_to(file)


def step_in(path: Path) -> int:
    """Return the global step in a checkpoint's name, such as 1500 for "model.ckpt-1500"."""
    return int(path.name.rpartition("-")[2])


def is_of_ended_run(checkpoint: Checkpoint) -> bool:
    """Return True if the chief had told the workers to take no more steps when it saved this checkpoint.

    Return False if training went on, or if the run was stopped or failed.
    """
    return int(checkpoint.values[COUNTERS][STOP_CODE]) == RUN_OVER


def contributions_in(checkpoint: Checkpoint) -> dict[str, int]:
    """Return {worker: how many of its training steps are in the checkpoint's model}, as {"worker0": 7}."""
    counters = checkpoint.values[COUNTERS]
    return {f"worker{worker}": int(count) for worker, count in enumerate(counters[FIRST_WORKER:])}


def _counters_of(counters: npt.NDArray[np.generic], workers: int) -> npt.NDArray[np.generic]:
    """Return the counters for `workers` workers: new workers have 0 steps, missing workers are cut off."""
    kept = counters[: FIRST_WORKER + workers]
    return np.pad(kept, (0, FIRST_WORKER + workers - len(kept)))


def _value_in(checkpoint: Checkpoint, name: str) -> npt.NDArray[np.generic] | None:
    """Return the value of variable `name` in a checkpoint; None if the checkpoint has no such variable.

    If an optimizer's own number of a further ps is missing, such as "beta1_power_1", return "beta1_power".
    """
    once = _OF_ANOTHER_PS.fullmatch(name)
    return checkpoint.values.get(name, checkpoint.values.get(once[1]) if once else None)


def read_checkpoint(path: Path) -> tuple[Checkpoint | None, str]:
    """Return (the checkpoint at `path`, ""), or (None, the reason) if it is missing or damaged.

    `path` has no suffix. The files with the rows of tables are not read.
    """
    try:
        reader = tf.train.load_checkpoint(str(path))
        values = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        step = int(values[COUNTERS][GLOBAL_STEP])
        return Checkpoint(path, step, values, _tables_of(path, step, values.pop(TABLES, None))), ""
    except Exception as error:  # IndexError, ValueError, DataLossError: it depends on the damage
        return None, (str(error).splitlines() or [type(error).__name__])[0]


def _tables_of(path: Path, step: int, sha256: npt.NDArray[np.generic] | None) -> Sequence[SavedTable]:
    """Return the tables in the manifest beside the checkpoint at `path`; () if `sha256` is None.

    Raises ValueError if the manifest is missing, or does not have this SHA-256, and OSError.
    """
    if sha256 is None:
        return ()
    file = Path(f"{path}.{MANIFEST}")
    if not file.exists():
        raise ValueError(f"{file.name}, the manifest of its tables, is not there")
    text = file.read_text(encoding="utf-8")
    if sha256_of_text(text) != sha256.tobytes().hex():
        raise ValueError(f"{file.name} is damaged, or the manifest of another save")
    return tables_in(text, step)
