"""Records of a program of one's own, for psfleet's verdict and its progress line. See docs/programs.md.

    import psfleet_records

    psfleet_records.started(last_step=1000, learning_rate=0.1)
    psfleet_records.step(global_step, loss, examples=batch_size)   # after each step
    psfleet_records.evaluated(global_step, accuracy=0.97)
    psfleet_records.finished()

Where a program runs without psfleet, as by hand, every call does nothing and says nothing. It needs neither
TensorFlow nor psfleet's `trainer` package on the path: a program may have a package of that name itself.
Every function raises ValueError for a value that is not of the kind that its docstring says.
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
    from trainer.contract import program_run, records, step_windows

__all__ = ["checkpointed", "evaluated", "failed", "finished", "started", "step"]

# A program may take it out of the environment, to give TensorFlow a cluster of its own.
_TF_CONFIG = os.environ.get("TF_CONFIG", "")

# psfleet's own package, under a name that no program's own package has.
_CONTRACT = "_psfleet_contract"


def _contract(module: str) -> ModuleType:
    """Return a module of psfleet's package `contract`, which lies above this folder."""
    if _CONTRACT not in sys.modules:
        path = Path(__file__).resolve().parents[2] / "contract" / "__init__.py"
        spec = importlib.util.spec_from_file_location(_CONTRACT, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is missing")
        sys.modules[_CONTRACT] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[_CONTRACT])
    return importlib.import_module(f"{_CONTRACT}.{module}")


if not TYPE_CHECKING:
    records, step_windows, program_run = map(_contract, ("records", "step_windows", "program_run"))


class Task:
    """What this process has told of its task so far."""

    def __init__(self, run_directory: Path) -> None:
        job, index = os.environ["PSFLEET_JOB"], int(os.environ["PSFLEET_TASK_INDEX"])
        names = ("PSFLEET_RUN_ID", "PSFLEET_PLAN_HASH", "PSFLEET_RELEASE", "PSFLEET_PROGRAM_RELEASE")
        run_id, plan_hash, release, program = (os.environ.get(name, "") for name in names)
        identity = records.TaskIdentity(run_id, job, index, plan_hash, release, program or "unknown")
        self.name, self.records_file = identity.task, records.events_file(run_directory, job, index)
        cluster = program_run.cluster_of(_TF_CONFIG) if _TF_CONFIG else {}
        members = cluster.get(job, [])
        self.address = members[index] if index < len(members) else ""
        self.workers = [
            f"{job}{index}" for job in ("chief", "worker") for index in range(len(cluster.get(job, [])))
        ]
        self.is_lead = bool(cluster) and identity.task == program_run.lead_task(cluster)
        self.records = records.open_records(
            run_directory, identity, lambda said: sys.stderr.write(f"{said}\n")
        )
        self.windows = step_windows.StepWindows(self.records, 0)
        self.run_directory = run_directory
        self.last_step = self.local_step = self.examples = 0
        self.global_step: int | None = None
        self.loss: float | None = None
        # Of each worker, by index, where a coordinator knows them.
        self.contributions: list[int] | None = None
        self.first_step_at: float | None = None
        self._next_report = 0.0
        self.lock = threading.RLock()
        # What each thread told last, and since when none was taken back. By threading.local, for Python gives
        # the ident of a thread that has ended to the next.
        self._told, self._era, self._tellers = threading.local(), 0, 0

    def start(self, settings: Mapping[str, object], last_step: int, nonce: int = 0) -> None:
        """Record that this process begins, or begins anew; 0 for a last step that is not known."""
        self.last_step = last_step
        self.windows.flush()
        self.local_step = self.examples = 0
        self.first_step_at = None
        self._begin_era()
        self.windows = step_windows.StepWindows(self.records, last_step)
        tensorflow: Any = sys.modules.get("tensorflow")
        version = str(getattr(tensorflow, "__version__", ""))
        self.records.write_started(settings, version, self.address, nonce)
        self.report(at_once=True)

    def count(self, after: int, steps: int, loss: float | None, examples: int) -> None:
        """Count steps that the program tells of, after which, or before whose end, it read the global step.

        A value that is fetched with a step is that before it or that after it. Threads tell theirs in any
        order: where one tells less than another did, nothing was taken back.
        """
        last = self.global_step
        at = max(after, last or 0) if self._goes_on(after) else after
        before = max(after - steps, 0) if last is None else last
        self.first_step_at = self.first_step_at or time.monotonic()
        self.local_step += steps
        self.examples += examples
        self.global_step = at
        self.loss = self.loss if loss is None else loss
        # Of the steps of other threads nobody knows how long each has lasted.
        self.windows.leave_unplaced(steps if self._tellers == 1 else math.inf)
        self.windows.add_unread(loss, before, at, examples, steps)
        self.report()

    def _goes_on(self, after: int) -> bool:
        """Note what this thread tells; whether the global step was not taken back, as far as it knows."""
        era, told = getattr(self._told, "last", (-1, 0))
        is_new = era != self._era
        goes_on = self._tellers > 0 if is_new else told <= after
        if not goes_on:
            self._begin_era()
        self._tellers += is_new or not goes_on
        self._told.last = self._era, after
        return goes_on

    def _begin_era(self) -> None:
        """Forget what threads told: the first to tell more says where the run stands."""
        self._era, self._tellers = self._era + 1, 0

    def take(self, losses: Sequence[float | None], before: int, after: int, unplaced: int = 0) -> None:
        """Record steps as one window: the loss of each, and the global step before and after them all."""
        self.first_step_at = self.first_step_at or time.monotonic()
        self.windows.add_window(losses, before, after, unplaced)
        self.local_step += len(losses)
        self.tell(after, next((loss for loss in reversed(losses) if loss is not None), None))

    def tell(self, global_step: int, loss: float | None) -> None:
        """Tell where the run stands now."""
        self.global_step, self.loss = global_step, self.loss if loss is None else loss
        self.report()

    def report(self, *, at_once: bool = False) -> None:
        """Tell where the run stands, where this task leads it: at most twice a second, or at once."""
        if not self.is_lead or (time.monotonic() < self._next_report and not at_once):
            return
        self._next_report = time.monotonic() + program_run.SECONDS_BETWEEN_REPORTS
        known: dict[str, object] = {"global_step": self.global_step, "last_step": self.last_step}
        known |= {"loss": self.loss, "contributions": self.contributions}
        told = {name: value for name, value in known.items() if value is not None}
        with contextlib.suppress(OSError):  # a full disk does not stop the program
            program_run.update_progress(self.run_directory, told)

    def flush(self) -> None:
        """Write what was counted and not yet written."""
        with self.lock:
            self.windows.flush()
            self.report(at_once=True)

    def finish(self, reason: str, more: Mapping[str, object] | None = None) -> None:
        """Record that it has done its work, with what more is known of it."""
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
        """Record why it cannot go on."""
        self.flush()
        self.records.write("failed", {"class": "program", "reason": reason})


_tasks: dict[int, Task] = {}
_told: set[int] = set()
_creating = threading.Lock()


def draw_nonce() -> int:
    """Return a number that nobody else has drawn, for psfleet's own observer."""
    return records.draw_nonce()


def told_by_program() -> bool:
    """Whether the program itself records what this process does."""
    return os.getpid() in _told


def task_to_observe() -> Task | None:
    """Return the task, for psfleet's own observer; None where the program tells of it itself."""
    return None if told_by_program() else _task_of_process()


def _task() -> Task | None:
    """The task of this process, of which the program tells."""
    _told.add(os.getpid())
    return _task_of_process()


def _task_of_process() -> Task | None:
    """The task; None where psfleet does not run it. A forked process begins its own count."""
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
    """Say before the first step that this task begins, and again where it begins another phase.

    `last_step` is the global step at which the run ends, 0 where that is not known. `settings` are what one
    wants to read about the run later: numbers, texts, lists. `replication="sync"` says that the workers are
    always at the same step, so that the verdict does not ask whose steps came between.
    """
    if (task := _task()) is not None:
        with task.lock:
            task.start(settings, _whole("last_step", last_step))


def step(global_step: int, loss: float | None = None, *, examples: int = 0, steps: int = 1) -> None:
    """Count a training step that this task has taken: cheap, so call it after every step.

    `global_step` is the run's step after it, or as it was fetched with it, `loss` of its examples (None where
    this task knows none: the verdict then goes by those of the others), `examples` how many of them this task
    read. `steps`: how many steps the call stands for, where a program takes several at once.
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
    """Say what an evaluation found, such as `accuracy=0.97`; the goals of a verdict are asked of the last."""
    if (task := _task()) is not None:
        values = {name: float(value) for name, value in metrics.items()}
        fields = {"global_step": _whole("global_step", global_step), "metrics": values}
        with task.lock:
            task.windows.flush()
            task.records.write("evaluated", fields)


def checkpointed(global_step: int, path: str | os.PathLike[str], *, seconds: float = math.nan) -> None:
    """Say that a checkpoint was saved, where, and how long it took."""
    if (task := _task()) is not None:
        after = _whole("global_step", global_step)
        fields = {"global_step": after, "path": os.fspath(path), "seconds": float(seconds)}
        task.records.write("checkpointed", fields)


def finished(reason: str = "last step") -> None:
    """Say that this task has done its work: `last step`, or `run over` for one that only served."""
    if (task := _task()) is not None:
        task.finish(reason)


def failed(reason: str) -> None:
    """Say why this task cannot go on. The program ends itself, by an exception or an exit code."""
    if (task := _task()) is not None:
        task.fail(reason)


def _whole(name: str, value: object) -> int:
    """The value as an integer: also of numpy or of a tensor, which know `__index__` or `__int__`."""
    with contextlib.suppress(TypeError, ValueError):
        number = int(value)  # type: ignore[call-overload]
        if number == value and number >= 0:
            return int(number)
    raise ValueError(f"{name} is {value!r}, expected an integer >= 0")
