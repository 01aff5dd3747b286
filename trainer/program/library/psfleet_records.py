"""Event records of a program, for psfleet's verdict and its progress line. See docs/programs.md.

    import psfleet_records

    psfleet_records.started(last_step=1000, learning_rate=0.1)
    psfleet_records.step(global_step, loss, examples=batch_size)   # after each step
    psfleet_records.evaluated(global_step, accuracy=0.97)
    psfleet_records.finished()

If the program runs without psfleet, for example by hand, every function does nothing. This module needs
neither TensorFlow nor psfleet's `trainer` package on the path, because a program may have a package of that
name itself. Every function raises ValueError for a value of another kind than its docstring says.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import importlib.util
import math
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.contract import program_progress, records, step_windows

__all__ = ["checkpointed", "evaluated", "failed", "finished", "started", "step"]

# Read at the import, because a program may change the variable to build a cluster of its own.
_TF_CONFIG = os.environ.get("TF_CONFIG", "")

# At most this many steps may have been observed when the program writes its first own record.
_STEPS_BEFORE_RECORDS = 10

# The name under which psfleet's package `contract` is loaded; no package of a program has this name.
_CONTRACT = "_psfleet_contract"


def _contract(module: str) -> ModuleType:
    """Return the module `contract`.`module` of the trainer, loaded from its path relative to this file."""
    if _CONTRACT not in sys.modules:
        path = Path(__file__).resolve().parents[2] / "contract" / "__init__.py"
        spec = importlib.util.spec_from_file_location(_CONTRACT, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is missing")
        sys.modules[_CONTRACT] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[_CONTRACT])
    return importlib.import_module(f"{_CONTRACT}.{module}")


if not TYPE_CHECKING:
    records, step_windows, program_progress = map(_contract, ("records", "step_windows", "program_progress"))


class Task:
    """The task of this process, by the environment's variables, and what was recorded of it so far."""

    def __init__(self, run_directory: Path) -> None:
        job, index = os.environ["PSFLEET_JOB"], int(os.environ["PSFLEET_TASK_INDEX"])
        names = ("PSFLEET_RUN_ID", "PSFLEET_PLAN_HASH", "PSFLEET_RELEASE", "PSFLEET_PROGRAM_RELEASE")
        run_id, plan_hash, release, program = (os.environ.get(name, "") for name in names)
        identity = records.TaskIdentity(run_id, job, index, plan_hash, release, program or "unknown")
        self.name, self.records_file = identity.task, records.events_file(run_directory, job, index)
        cluster = program_progress.cluster_of(_TF_CONFIG) if _TF_CONFIG else {}
        members = cluster.get(job, [])
        self.address = members[index] if index < len(members) else ""
        self.workers = [
            f"{job}{index}" for job in ("chief", "worker") for index in range(len(cluster.get(job, [])))
        ]
        self.addresses = frozenset(address for hosts in cluster.values() for address in hosts)
        self.observed = False  # whether psfleet's observer records this process's steps
        self.is_lead = bool(cluster) and identity.task == program_progress.lead_task(cluster)
        self.records = records.open_records(
            run_directory, identity, lambda problem: sys.stderr.write(f"{problem}\n")
        )
        self.windows = step_windows.StepWindows(self.records, 0)
        self.run_directory = run_directory
        self.last_step = self.local_step = self.examples = 0
        self.global_step: int | None = None
        self.loss: float | None = None
        # The steps of each worker, by index, if this is a coordinator.
        self.contributions: list[int] | None = None
        self.first_step_at: float | None = None
        self._next_report = 0.0
        self.lock = threading.RLock()
        # Notes of the observer that wait until the task's first record is written.
        self._notes: list[tuple[str, Mapping[str, object]]] = []
        self._has_begun = False
        # The last (era, global step) of each thread; a new era begins when the global step is set back. This
        # is a threading.local, because Python reuses the ident of a thread that has ended.
        self._of_thread, self._era, self._threads = threading.local(), 0, 0

    def start(self, settings: Mapping[str, object], last_step: int, nonce: int = 0) -> None:
        """Record that this process begins, or begins again: its own steps are then counted from 0.

        `last_step` is the run's last global step, 0 if unknown; a `nonce` of 0 means that one is drawn.
        Events that wait (see `note`) are written, too.
        """
        self.last_step = last_step
        self.windows.flush()
        self.local_step = self.examples = 0
        self.first_step_at = None
        self._begin_era()
        self.windows = step_windows.StepWindows(self.records, last_step)
        tensorflow: Any = sys.modules.get("tensorflow")
        version = str(getattr(tensorflow, "__version__", ""))
        self.records.write_started(settings, version, self.address, nonce)
        self._write_notes()
        self.report(at_once=True)

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """Record an event that the observer sees beside the steps; keep it until the task's first record."""
        with self.lock:
            self._notes.append((event, fields))
            if self._has_begun:
                self._write_notes()

    def _write_notes(self) -> None:
        self._has_begun = True
        while self._notes:
            self.records.write(*self._notes.pop(0))

    def count(self, after: int, steps: int, loss: float | None, examples: int) -> None:
        """Count steps of the program; `after` is the global step that it read after them, or during the last.

        A global step that the program fetches together with a step may be the global step before or after the
        step. Threads report in any order: if another thread reports a lower global step, it was not set back.
        """
        self._write_notes()
        last = self.global_step
        at = max(after, last or 0) if self._goes_on(after) else after
        before = max(after - steps, 0) if last is None else last
        self.first_step_at = self.first_step_at or time.monotonic()
        self.local_step += steps
        self.examples += examples
        self.global_step = at
        self.loss = self.loss if loss is None else loss
        # With several threads, it is unknown when the other threads' steps began.
        self.windows.note_unplaced(steps if self._threads == 1 else math.inf)
        self.windows.add_unread(loss, before, at, examples, steps)
        self.report()

    def _goes_on(self, after: int) -> bool:
        """Note this thread's global step; return False if it counts even if it is lower than others'.

        That is so if it is lower than this thread's last one (the global step was set back), and for the
        first one that any thread reports after `start`.
        """
        era, last = getattr(self._of_thread, "last", (-1, 0))
        is_new = era != self._era
        goes_on = self._threads > 0 if is_new else last <= after
        if not goes_on:
            self._begin_era()
        self._threads += is_new or not goes_on
        self._of_thread.last = self._era, after
        return goes_on

    def _begin_era(self) -> None:
        """Forget all threads' global steps; the next one that any thread reports counts as it is."""
        self._era, self._threads = self._era + 1, 0

    def record_window(
        self,
        losses: Sequence[float | None],
        before: int,
        after: int,
        unplaced: int = 0,
        trained: int | None = None,
    ) -> None:
        """Write steps at once, as one record: the loss of each (None: unknown), for at least one step.

        `before` and `after` are the global steps before and after all of them. `unplaced` is the number of
        steps that may belong to a neighbouring window, `trained` the number that changed the model (None:
        unknown).
        """
        self.first_step_at = self.first_step_at or time.monotonic()
        self.windows.add_window(losses, before, after, unplaced, trained)
        self.local_step += len(losses)
        self.set_progress(after, next((loss for loss in reversed(losses) if loss is not None), None))

    def set_progress(self, global_step: int, loss: float | None) -> None:
        """Set the run's global step and loss (None keeps the last loss), then call `report`."""
        self.global_step, self.loss = global_step, self.loss if loss is None else loss
        self.report()

    def report(self, *, at_once: bool = False) -> None:
        """If this task is the lead, write `progress.json`: at most twice a second, or `at_once`.

        Errors of the disk are ignored.
        """
        if not self.is_lead or (time.monotonic() < self._next_report and not at_once):
            return
        self._next_report = time.monotonic() + program_progress.SECONDS_BETWEEN_REPORTS
        fields: dict[str, object] = {"global_step": self.global_step, "last_step": self.last_step}
        fields |= {"loss": self.loss, "contributions": self.contributions}
        changes = {name: value for name, value in fields.items() if value is not None}
        with contextlib.suppress(OSError):  # a full disk must not stop the program
            program_progress.update_progress(self.run_directory, changes)

    def flush(self) -> None:
        """Write a record of the counted steps that are not written yet, if there are any; report at once."""
        with self.lock:
            self.windows.flush()
            self.report(at_once=True)

    def finish(self, reason: str, more: Mapping[str, object] | None = None) -> None:
        """Record that the task has done its work, with the number of its steps and the last loss, if known.

        `reason` is a text such as "last step"; `more` are further fields of the record.
        """
        self.flush()
        fields: dict[str, object] = {"reason": reason, **(more or {})}
        if self.global_step is not None and self.first_step_at is not None:
            steps = {"local_step": self.local_step, "global_step": self.global_step}
            seconds = round(time.monotonic() - self.first_step_at, 6)
            known = {"loss": self.loss, "last_step": self.last_step or None}
            fields |= {**steps, "seconds": seconds, "examples": self.examples}
            fields |= {name: value for name, value in known.items() if value is not None}
        self.records.write("finished", fields)

    def fail(self, reason: str) -> None:
        """Record in words why the task cannot go on; the counted steps are written first."""
        self.flush()
        self.records.write("failed", {"class": "program", "reason": reason})


_tasks: dict[int, Task] = {}
# The pids of processes in which the program itself called this module.
_recording: set[int] = set()
_creating = threading.Lock()


def draw_nonce() -> int:
    """Return a nonce, for psfleet's own observer."""
    return records.draw_nonce()


def recorded_by_program() -> bool:
    """Return whether the program has called this module in this process; False if only the observer has."""
    return os.getpid() in _recording


def task_to_observe() -> Task | None:
    """Return the task of this process, for psfleet's own observer; None if psfleet does not run it."""
    return _task_of_process()


def _task() -> Task | None:
    """Return the task of this process, which the program records from now on.

    Return None if psfleet does not run the process.
    """
    task = _task_of_process()
    if os.getpid() not in _recording:
        _recording.add(os.getpid())
        # A few steps are allowed: a program may record its first step only after it, in several threads.
        if task is not None and task.observed and task.local_step > _STEPS_BEFORE_RECORDS:
            task.note("unseen", {"reason": "the program records its steps itself from here on"})
    return task


def _task_of_process() -> Task | None:
    """Return the task of this process, created by the first call; None if psfleet does not run the process.

    A forked process has a task object of its own.
    """
    directory = os.environ.get("PSFLEET_RUN_DIRECTORY", "")
    if not directory:
        return None
    with _creating:
        if os.getpid() not in _tasks:
            _tasks.clear()
            _tasks[os.getpid()] = task = Task(Path(directory))
            atexit.register(task.flush)
        return _tasks[os.getpid()]


def started(*, last_step: int = 0, **settings: object) -> None:
    """Record that this task begins. Call it before the first step, and again before another phase.

    Args:
        last_step: the global step at which the run ends; 0 if unknown.
        settings: numbers, texts and lists, to read about the run later. `replication="sync"` says that all
            workers are always at the same step: then the verdict does not require other workers' steps
            between the steps of this task.

    """
    if (task := _task()) is not None:
        with task.lock:
            task.start(settings, _whole("last_step", last_step))


def step(global_step: int, loss: float | None = None, *, examples: int = 0, steps: int = 1) -> None:
    """Count a training step of this task. The call is cheap, so call it after every step.

    Args:
        global_step: the run's global step after the step, or as it was fetched with the step.
        loss: the loss of the step's examples; None if this task does not know it. Then the verdict uses the
            losses of other tasks.
        examples: how many examples this task read.
        steps: how many steps the call stands for, if the program takes several steps at once.

    """
    if (task := _task()) is None:
        return
    after, count, read = (
        _whole("global_step", global_step),
        _whole("steps", steps),
        _whole("examples", examples),
    )
    with task.lock:
        task.count(after, count, None if loss is None else float(loss), read)


def evaluated(global_step: int, **metrics: float) -> None:
    """Record an evaluation's metrics, such as `accuracy=0.97`; a verdict's goals apply to the last call."""
    if (task := _task()) is not None:
        values = {name: float(value) for name, value in metrics.items()}
        fields = {"global_step": _whole("global_step", global_step), "metrics": values}
        with task.lock:
            task.windows.flush()
            task.records.write("evaluated", fields)


def checkpointed(global_step: int, path: str | os.PathLike[str], *, seconds: float = math.nan) -> None:
    """Record that a checkpoint was saved at `path`, and the `seconds` that saving took."""
    if (task := _task()) is not None:
        after = _whole("global_step", global_step)
        fields = {"global_step": after, "path": os.fspath(path), "seconds": float(seconds)}
        task.records.write("checkpointed", fields)


def finished(reason: str = "last step") -> None:
    """Record that this task has done its work; `reason` is `last step`, or `run over` if it only served."""
    if (task := _task()) is not None:
        task.finish(reason)


def failed(reason: str) -> None:
    """Record why this task cannot go on. The program must end itself, by an exception or an exit code."""
    if (task := _task()) is not None:
        task.fail(reason)


def _whole(name: str, value: object) -> int:
    """Return `value` as an int; numbers of NumPy and tensors are allowed, too.

    Raises ValueError if it is not an integer of at least 0.
    """
    with contextlib.suppress(TypeError, ValueError):
        number = int(value)  # type: ignore[call-overload]
        if number == value and number >= 0:
            return int(number)
    raise ValueError(f"{name} is {value!r}, expected an integer >= 0")
