"""The chief's saves: when they are due, and how a thread writes them while training goes on."""

import math
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread

import tensorflow as tf

from trainer.contract.exit_codes import INPUT
from trainer.contract.settings import TrainingSettings
from trainer.coordination.bounded_calls import is_lost_connection
from trainer.coordination.ledger_parts import COUNTERS, GLOBAL_STEP
from trainer.coordination.running_task import RunningTask
from trainer.engine.training import TrainingGraph, TrainingSession
from trainer.host.error_lines import error_in_short
from trainer.model.checkpoints import (
    CHECKPOINTS,
    Checkpoint,
    CheckpointFolder,
    DamagedError,
    NotFinite,
    Values,
    checkpoint_paths,
    read_checkpoint,
    step_in,
    tensors_to_save,
)
from trainer.model.fingerprint import fingerprints_of_ps
from trainer.model.tables.checkpoint_files import SHA256_BYTES, TABLES, tables_in
from trainer.process.console import say
from trainer.process.failure import TaskFailure
from trainer.task.checkpoint_copies import CheckpointCopies
from trainer.task.tables.chief import TableSaves

_FIRST_INTERVAL_SECONDS = 5.0
# The share of the time for which saves may stop training: if saves are slow, the interval grows, up to its
# setting.
_SHARE = 0.01


class CheckpointSchedule:
    """When the next checkpoint is due; times are seconds of the monotonic clock.

    After a start the intervals are 5 s, 10 s, 20 s and so on: the setting `checkpoint_interval_seconds` may
    be longer than all the time that a young run has trained. If saves stop training for long, an interval is
    100 times as long as the save stopped it. No interval is longer than the setting.
    """

    def __init__(self, settings: TrainingSettings) -> None:
        self._seconds, self._steps = settings.checkpoint_interval_seconds, settings.checkpoint_interval_steps
        self.start(0, 0.0)

    def start(self, global_step: int, at: float) -> None:
        """Begin the first interval, in seconds from time `at`, and in steps from `global_step`."""
        self._interval = min(_FIRST_INTERVAL_SECONDS, self._seconds)
        self._next, self._steps_from = at + self._interval, global_step

    def count(self, global_step: int, at: float, stopped_seconds: float) -> None:
        """Begin the next interval in seconds, after an attempt to save.

        The attempt stopped training for `stopped_seconds`. The interval in steps begins anew only if it is
        over: a save that was due by time does not move it.
        """
        self._interval = min(max(2 * self._interval, stopped_seconds / _SHARE), self._seconds)
        self._next = at + self._interval
        if self.steps_left(global_step) <= 0:
            self._steps_from = global_step

    def is_due_by_time(self, at: float) -> bool:
        """Return whether the interval in seconds is over at time `at`."""
        return at >= self._next

    def steps_left(self, global_step: int) -> float:
        """Return the global steps until `checkpoint_interval_steps` is over, 0 or less if it is over.

        Return infinity if that setting is 0.
        """
        return self._steps_from + self._steps - global_step if self._steps else math.inf


class CheckpointSaver:
    """Saves and restores the chief's checkpoints; without a run directory it does neither.

    Attributes:
        is_saving: whether a save, or the last copies, are going on; another thread reads it.
        saved_step: the global step of the newest checkpoint; -1 if none is known.
        own_steps: the global steps of the kept checkpoints that this process has saved.
        tables: saves and restores the tables.

    """

    def __init__(self, task: RunningTask, graph: TrainingGraph) -> None:
        """Add the operations to the chief's graph, and create the folder of checkpoints if it is missing.

        Raises TaskFailure (`input`) if the folder cannot be used.
        """
        self._task, self._folder = task, _checkpoint_folder(task)
        self._schedule = CheckpointSchedule(task.settings)
        self._thread: Thread | None = None
        self.saved_step = -1
        self.own_steps: set[int] = set()
        self._variables = graph.variables
        # Why the last save failed, in words; or the unexpected error that the thread met.
        self._reason = ""
        self._error: Exception | None = None
        self.is_saving = False
        self.tables = TableSaves(graph, self._folder.directory if self._folder else None, task.target)
        if self._folder is not None:
            # The CPU of this process; None if another process is this task's server.
            device = None if task.cluster.existing_servers else f"{task.cluster.device}/device:CPU:0"
            with graph.graph.as_default():
                self._tensors = tensors_to_save(graph.variables, device)
                sha256 = {TABLES: tf.zeros([SHA256_BYTES], tf.uint8)} if graph.tables.variables else {}
            self._copies = CheckpointCopies(task, {**self._tensors, **sha256}, self.tables)

    def newest_checkpoint(self, ps: Collection[str] | None = None) -> Checkpoint | None:
        """Return the newest good checkpoint, from here or from another host.

        Return None if none was ever saved, or without a run directory. Nothing is restored. With `ps`, only
        the rows on these ps must be good. Table files that a ps lacks are fetched from other tasks. Damaged
        checkpoints are recorded.

        Raises TaskFailure: `input` if all checkpoints are damaged, `peers_missing` if there is none here and
        another host does not answer. Raises tf.errors.OpError if a task is lost.
        """
        # So a save that is going on fails at once, and does not wait for a lost ps.
        self.tables.drop_connection()
        self.finish()
        if self._folder is None:
            return None
        self.tables.forget()
        copies = self._copies.ask_keepers(needed=not checkpoint_paths(self._folder.directory))
        fetch_tables = partial(self.tables.fetch_missing_files, ps=ps)
        checkpoint = self._folder.newest_good(self._report_damaged, copies, fetch_tables)
        self.saved_step = checkpoint.global_step if checkpoint else -1
        return checkpoint

    def start(self, session: TrainingSession, global_step: int) -> None:
        """Save before the next step, because a ps may be lost early, and begin the intervals.

        If this global step is saved already, only begin the intervals. The first checkpoint of a run is on
        disk when this returns; a later one is written by the thread. Raises tf.errors.OpError if a ps is
        lost.
        """
        is_first = self.saved_step < 0
        self.save(session, global_step)
        if is_first:
            self.finish()
        self._schedule.start(global_step, time.monotonic())

    def save_if_due(self, session: TrainingSession, global_step: int) -> None:
        """Save, as `save` does, if an interval is over; else do nothing.

        An interval in seconds waits for a save that is going on. Raises tf.errors.OpError if a ps is lost.
        """
        due_by_time = not self.is_saving and self._schedule.is_due_by_time(time.monotonic())
        if due_by_time or self._schedule.steps_left(global_step) <= 0:
            self.save(session, global_step)

    def steps_left(self, global_step: int) -> float:
        """Return the global steps until a checkpoint is due by steps, 0 or less if one is due.

        Return infinity if none is ever due by steps.
        """
        return self._schedule.steps_left(global_step)

    def save_last(self, session: TrainingSession, global_step: int) -> None:
        """Save the final model, and wait until it is written, and up to 30 s for the copies.

        Without a run directory, do nothing. Raises TaskFailure (`input`) if the model is not saved, and
        tf.errors.OpError if a ps is lost; copies may fail.
        """
        if self._folder is None:
            return
        self._copies.run_ends = True
        self.save(session, global_step)
        if why := self.finish() or self._fetch_tables(self._folder):
            raise TaskFailure(
                INPUT, f"the last checkpoint, of global step {global_step}, is not saved: {why}"
            )
        self.is_saving = True
        self._copies.finish()
        self.is_saving = False

    def save(self, session: TrainingSession, global_step: int, *, whole: bool = False) -> None:
        """Read the values and let a thread write them, unless this global step is saved already.

        If another save is going on, wait for it first. Training stops only while the values are read. With
        `whole`, the thread then fetches the tables' files beside the checkpoint, also if it was saved before,
        so that it can be read without the ps. Raises tf.errors.OpError if a ps is lost; any other failure to
        save is printed and recorded, and `finish` returns it.
        """
        self.finish()
        if self._folder is None:
            return
        if global_step == self.saved_step:
            if whole:
                self._begin(partial(self._fetch_for_evaluation, self._folder))
            return
        began = time.monotonic()
        self.is_saving = True
        try:
            with session.updates_paused(), self.tables.blocked_pushes():
                values: Values = session.session.run(self._tensors)
                self.tables.begin_writing(int(values[COUNTERS][GLOBAL_STEP]))
        except (tf.errors.OpError, DamagedError) as error:
            self.is_saving = False
            if is_lost_connection(error):
                raise
            self._fail(global_step, error_in_short(error))
            return
        finally:
            stopped_seconds = time.monotonic() - began
            self._schedule.count(global_step, time.monotonic(), stopped_seconds)
        self._begin(partial(self._write, self._folder, values, began, stopped_seconds, whole=whole))

    def _begin(self, work: Callable[[], None]) -> None:
        """Let a thread do the work; `finish` raises its exception."""

        def do() -> None:
            try:
                work()
            except Exception as error:
                self._error = error  # raised in the thread that trains
            finally:
                self.is_saving = False

        self.is_saving = True
        self._thread = Thread(target=do, daemon=True)
        self._thread.start()

    def finish(self) -> str:
        """Wait for a save that is going on; return why the last save failed, in words.

        Return "" if it did not fail, or if there was none. Raises the exception of the thread if it is an
        error of psfleet itself.
        """
        if self._thread is not None:
            self._thread.join()
        self._thread = None
        if self._error is not None:
            raise self._error
        return self._reason

    def _write(
        self,
        folder: CheckpointFolder,
        values: Values,
        began: float,
        stopped_seconds: float,
        *,
        whole: bool,
    ) -> None:
        # The chief's global step, or a later step: other workers may have taken steps while it read the
        # values.
        global_step = int(values[COUNTERS][GLOBAL_STEP])
        try:
            manifest = self.tables.finish(global_step)
            path, fingerprint = folder.write(values, manifest)
            steps = [step_in(kept) for kept in checkpoint_paths(folder.directory)]
            self.saved_step, self.own_steps = global_step, {*self.own_steps, global_step} & {*steps}
            self._reason = ""
            seconds = {"seconds": round(time.monotonic() - began, 6)}
            seconds["stopped_seconds"] = round(stopped_seconds, 6)
            fields: dict[str, object] = {"path": str(path), "fingerprint": fingerprint, **seconds}
            fields |= self.tables.record_fields
            if self._task.settings.ps_recovery == "partial":
                fields["ps_fingerprints"] = fingerprints_of_ps(self._variables, values, self.tables.sums)
            self._task.records.write("checkpointed", {"global_step": self.saved_step, **fields})
            # A checkpoint counts even if a ps was lost after the ps wrote its part.
            with suppress(tf.errors.OpError):
                self.tables.keep(steps)
                if manifest:
                    self.tables.base_next_save_on(global_step, tables_in(manifest, global_step), fingerprint)
            self._copies.send(values, path, fingerprint, manifest)
            if whole:
                self._fetch_for_evaluation(folder)
        except (NotFinite, DamagedError) as error:
            self._fail(global_step, str(error))
        except (tf.errors.OpError, OSError) as error:
            self._fail(global_step, error_in_short(error))

    def _fetch_for_evaluation(self, folder: CheckpointFolder) -> None:
        """Fetch the table files of the newest checkpoint to this host; print why if that failed."""
        try:
            why = self._fetch_tables(folder)
        except tf.errors.OpError as error:
            why = error_in_short(error)
        if why:
            say(f"The checkpoint at global step {self.saved_step} cannot be evaluated: {why}")

    def _fetch_tables(self, folder: CheckpointFolder) -> str:
        """Fetch the table files of the newest checkpoint to this host; return why that failed, in words.

        Return "" if it did not fail, or if the model has no tables.
        """
        if not self.tables.has_tables:
            return ""
        checkpoint, problem = read_checkpoint(folder.directory / f"model.ckpt-{self.saved_step}")
        if checkpoint is None:
            return problem
        self.is_saving = True
        try:
            self.tables.fetch_to_chief(checkpoint)
        except (DamagedError, OSError) as error:
            return f"its tables could not be brought here: {error_in_short(error)}"
        finally:
            self.is_saving = False
        return ""

    def _report_damaged(self, path: Path, problem: str) -> None:
        say(f"checkpoint {path} cannot be read completely and is skipped: {problem}")
        fields = {"global_step": step_in(path), "path": str(path), "reason": problem}
        self._task.records.write("checkpoint_damaged", fields)

    def _fail(self, global_step: int, reason: str) -> None:
        self._reason = reason
        say(f"The checkpoint at global step {global_step} could not be saved: {reason}")
        self._task.records.write("checkpoint_failed", {"global_step": global_step, "reason": reason})


def _checkpoint_folder(task: RunningTask) -> CheckpointFolder | None:
    if task.options.run_directory is None:
        return None
    # TensorFlow resolves a relative path in its own process's directory; messages show this path, too.
    absolute = task.options.run_directory.absolute() / CHECKPOINTS
    try:
        return CheckpointFolder(absolute, task.settings.checkpoints_to_keep)
    except OSError as error:
        raise TaskFailure(INPUT, f"{absolute} cannot be used for checkpoints: {error.strerror}") from error
