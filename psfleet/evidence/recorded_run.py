"""A run as its records describe it: tasks, the processes of each task, and their windows of steps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from psfleet.evidence.endings import Ending
from psfleet.evidence.replication_rules import ReplicationRules
from psfleet.inventory.success_policy import ALL_WORKERS, SuccessPolicy
from trainer.contract.plan import ClusterPlan
from trainer.contract.records import EVALUATOR_NAME, STOPPED_BY_HAND, STOPPED_REASONS, Record
from trainer.contract.run_tasks import SERVER, RunTask
from trainer.contract.task_names import CHIEF

# The reasons of a worker's `finished` that say that it was there to the end.
GOOD_ENDINGS = {"last step", "run over"}


@dataclass(frozen=True)
class Window:
    """Several consecutive local steps of a worker, from one event record `step`.

    `before` and `after` are the global step before the first step and after the last. `loss` is that of the
    last step, `loss_mean` that of all; nan if it was not finite, None if the program recorded none.
    `staleness` counts gradients: first those that missed no step of others, then those that missed 2**(b-1)
    to 2**b - 1 of them, for each b from 1 on; `own_steps_behind` of them missed the worker's own last step,
    too. `waiting_seconds` is the part of `seconds` in which the worker waited for others. `unplaced` of the
    steps may have been made before `before` or after `after`. Values that a record lacks are None.
    """

    local_step: int
    steps: int
    before: int
    after: int
    examples: int
    seconds: float
    loss: float | None
    loss_mean: float | None
    staleness: tuple[int, ...] | None
    staleness_mean: float | None
    staleness_max: int | None
    own_steps_behind: int
    waiting_seconds: float | None
    unplaced: int = 0

    @classmethod
    def of(cls, record: Record) -> "Window":
        """Return the window of a `step` record."""
        maximum, names = record.fields.get("staleness_max"), record.fields.keys()
        return cls(
            local_step=record.integer("local_step"),
            steps=record.integer("steps"),
            before=record.integer("global_step_before"),
            after=record.integer("global_step_after"),
            examples=record.integer("examples"),
            seconds=record.number("seconds"),
            loss=record.number("loss") if "loss" in names else None,
            loss_mean=record.number("loss_mean") if "loss_mean" in names else None,
            staleness=_counts(record.fields.get("staleness_histogram")),
            staleness_mean=_finite(record, "staleness_mean"),
            staleness_max=maximum if type(maximum) is int else None,
            own_steps_behind=record.integer("own_steps_behind") if "own_steps_behind" in names else 0,
            waiting_seconds=_finite(record, "waiting_seconds"),
            unplaced=max(record.integer("unplaced"), 0) if "unplaced" in names else 0,
        )


@dataclass(frozen=True)
class Process:
    """One process of a task, from its `started` on; a task that is restarted has several."""

    records: tuple[Record, ...]

    @cached_property
    def nonce(self) -> int | None:
        """The nonce that this process drew at its start; None if its `started` is missing."""
        first = self.records[0]
        return first.integer("nonce") if first.event == "started" else None

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The windows of steps, in the order of the records."""
        return tuple(Window.of(record) for record in self.records if record.event == "step")

    @cached_property
    def stretches(self) -> tuple[tuple[Window, ...], ...]:
        """The windows in groups, within which the global step did not go back and no session broke."""
        stretches: list[list[Window]] = []
        joined = False
        for record in self.records:
            if record.event != "step":
                joined = joined and record.event not in {"recovering", "peers_ready"}
                continue
            window = Window.of(record)
            if not joined or window.before < stretches[-1][-1].after:
                stretches.append([])
            stretches[-1].append(window)
            joined = True
        return tuple(tuple(stretch) for stretch in stretches)

    @cached_property
    def reach(self) -> tuple[int, int] | None:
        """The first and last global step of its windows, or its step when it last met its peers."""
        if self.windows:
            return self.windows[0].before, self.windows[-1].after
        met = self.last("peers_ready")
        return (met.integer("global_step"), met.integer("global_step")) if met else None

    @cached_property
    def ending(self) -> Record | None:
        """Its `finished` or `failed`; None if it was killed, or its records are cut."""
        return self.last("finished", "failed")

    @property
    def cut_off(self) -> bool:
        """Whether it may have taken steps that it did not record."""
        return self.ending is None or self.ending.event == "failed"

    @cached_property
    def evaluated(self) -> Record | None:
        """Its last evaluation; None if there is none."""
        return self.last("evaluated")

    def last(self, *events: str) -> Record | None:
        """Return its last record of one of these events."""
        return next((record for record in reversed(self.records) if record.event in events), None)

    @property
    def local_steps(self) -> int:
        """The number of steps that this process applied, as far as it recorded them."""
        counts = [window.local_step for window in self.windows]
        if self.ending is not None and self.ending.event == "finished" and "local_step" in self.ending.fields:
            counts.append(self.ending.integer("local_step"))
        return max(counts, default=0)


@dataclass(frozen=True)
class TaskRecords:
    """The records of one task. `unreadable` and `foreign` describe other content of its file, in words."""

    name: str
    records: tuple[Record, ...] = ()
    unreadable: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    repeated: int = 0

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """The processes of the task, in the order of its file."""
        lives: list[list[Record]] = []
        for record in self.records:
            if record.event == "started" or not lives or record.pid != lives[-1][-1].pid:
                lives.append([])
            lives[-1].append(record)
        return tuple(Process(tuple(life)) for life in lives)

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The windows of all its processes, in the order of the records."""
        return tuple(window for process in self.processes for window in process.windows)

    @property
    def ending(self) -> Record | None:
        """The ending of its last process, without those that were stopped before they met their peers."""
        lives = self.processes
        met = [life.last("peers_ready") is not None for life in lives]
        while any(met) and not met[len(lives) - 1] and _was_stopped(lives[-1]):
            lives = lives[:-1]
        return lives[-1].ending if lives else None

    @cached_property
    def whole(self) -> bool:
        """Whether its file is complete, from the task's start to its end.

        What is missing in an incomplete file proves nothing.
        """
        consistent = all(
            process.nonce is not None
            and process.local_steps == sum(window.steps for window in process.windows)
            for process in self.processes
        )
        return self.ending is not None and consistent and not self.unreadable

    @property
    def settings(self) -> tuple[Mapping[str, object], ...]:
        """The settings of each of its processes, from their `started`."""
        recorded = (record.fields.get("settings") for record in self.of("started"))
        return tuple(settings for settings in recorded if isinstance(settings, Mapping))

    @property
    def local_steps(self) -> int:
        """The number of steps of all its processes."""
        return sum(process.local_steps for process in self.processes)

    @property
    def restarts(self) -> int:
        """How often it was restarted, except when a stopped run was resumed."""
        endings = [life.ending for life in self.processes[:-1]]
        return sum(ending is None or ending.text("reason") != STOPPED_BY_HAND for ending in endings)

    def of(self, *events: str) -> tuple[Record, ...]:
        """Return its records of these events, in the order of its file."""
        return tuple(record for record in self.records if record.event in events)


@dataclass(frozen=True)
class Run:
    """Everything that the checks judge; `problem` is the reason if the run cannot be judged.

    `expected` are the tasks that the run has by its plan and settings, `endings` how they ended by
    tasks.json. `training` is the training part of settings.json, `program` its program, None for a built-in
    model. `evaluator` has the records of the evaluator (trainer/evaluator.py), which is never one of `tasks`.
    `lost` are workers without which the run ends well by `success` (lost_workers.py); `expected` lacks them.
    `parts` are those of a run that went on with other workers (parts.py). A part begins at `first_step`, when
    the gradients of each worker in the model were `counted_before` (None: unknown). Unless it `is_last`, it
    ends with `until`, the restore from which the next one goes on.
    """

    folder: Path
    run_id: str
    plan: ClusterPlan | None = None
    problem: str = ""
    training: Mapping[str, object] = field(default_factory=dict)
    program: Mapping[str, object] | None = None
    rules: ReplicationRules = field(default_factory=ReplicationRules)
    expected: tuple[RunTask, ...] = ()
    tasks: Mapping[str, TaskRecords] = field(default_factory=dict)
    evaluator: TaskRecords = TaskRecords(EVALUATOR_NAME)
    unplanned: tuple[str, ...] = ()
    success: SuccessPolicy = ALL_WORKERS
    lost: tuple[RunTask, ...] = ()
    parts: tuple["Run", ...] = ()
    is_last: bool = True
    first_step: int = 0
    counted_before: Mapping[str, int] | None = field(default_factory=dict)
    until: Record | None = None
    endings: Mapping[str, Ending] = field(default_factory=dict)
    unusable_endings: Sequence[str] = ()

    @cached_property
    def workers(self) -> tuple[TaskRecords, ...]:
        """The run's workers by index, even without records; a program's chief comes before them."""
        return (*self.of_job("chief"), *self.of_job("worker"))

    @cached_property
    def with_lost(self) -> tuple[TaskRecords, ...]:
        """The run's workers, then the lost ones, even without records."""
        return (*self.workers, *(self.task(task.name) for task in self.lost))

    @cached_property
    def recorded_lost(self) -> tuple[TaskRecords, ...]:
        """The lost workers that left records: these are judged, too."""
        return tuple(worker for task in self.lost if (worker := self.task(task.name)).records)

    @property
    def recorded_workers(self) -> tuple[TaskRecords, ...]:
        """The run's workers, then the lost ones that left records."""
        return (*self.workers, *self.recorded_lost)

    def is_lost(self, name: str) -> bool:
        """Return whether a worker is one of the lost ones."""
        return any(task.name == name for task in self.lost)

    @property
    def steps_made(self) -> int:
        """The number of global steps from its first to its last."""
        return self.global_steps - self.first_step

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The windows of all workers, worker by worker."""
        if self.parts:
            return tuple(window for part in self.parts for window in part.windows)
        return tuple(window for worker in self.with_lost for window in worker.windows)

    @cached_property
    def whole(self) -> bool:
        """Whether the file of every worker is complete."""
        return all(worker.whole for worker in self.workers)

    @cached_property
    def ps(self) -> tuple[TaskRecords, ...]:
        """The run's parameter servers by index, even without records."""
        return self.of_job("ps")

    @cached_property
    def servers(self) -> tuple[TaskRecords, ...]:
        """The servers that clients connect to, by the index of the client, even without records."""
        return self.of_job(SERVER)

    @property
    def clients(self) -> tuple[TaskRecords, ...]:
        """The workers that have sessions of their own."""
        return self.workers[:1] if self.rules.one_client else self.workers

    @property
    def recorded_clients(self) -> tuple[TaskRecords, ...]:
        """The clients, then the lost ones that left records; a run with one client excuses nobody."""
        return (*self.clients, *self.recorded_lost)

    @property
    def chief(self) -> TaskRecords:
        """Worker 0; for a program, the lead."""
        return next(iter(self.of_job("chief")), self.task(CHIEF))

    @property
    def all_tasks(self) -> tuple[TaskRecords, ...]:
        """Every task that the run has, even without records."""
        return tuple(self.task(task.name) for task in self.expected)

    @cached_property
    def final(self) -> Record | None:
        """The chief's `finished`, with the final global step and each worker's contribution."""
        ending = self.chief.ending
        return ending if ending is not None and ending.event == "finished" else None

    @cached_property
    def global_steps(self) -> int:
        """The final global step by the chief's `finished`, or else the highest in any window."""
        if self.until is not None:
            return self.until.integer("global_step")
        if self.final is not None and self.program is None:
            return self.final.integer("global_step")
        return max((window.after for window in self.windows), default=0)

    @cached_property
    def evaluation(self) -> Process | None:
        """The last process of the evaluator that evaluated the last checkpoint, or else its last process.

        A process that recorded its end is preferred: everyone who watches a run starts the evaluator at its
        end, and the records may be collected in the meantime.
        """
        saved = [record.integer("global_step") for record in self.chief.of("checkpointed")][-1:]
        lives = self.evaluator.processes
        done = [life for life in lives if life.evaluated and life.evaluated.integer("global_step") in saved]
        ended = [life for life in done if life.ending]
        return (ended or done or lives or (None,))[-1]

    @property
    def last_step(self) -> int | None:
        """The global step at which the run was to end, by the chief's `finished`."""
        is_recorded = self.final is not None and "last_step" in self.final.fields
        return self.final.integer("last_step") if self.final and is_recorded else None

    @cached_property
    def contributions(self) -> Mapping[str, int]:
        """The number of gradients of each worker, as the parameter servers counted them, or {}."""
        counts = self.until or self.final
        if counts is None or self.counted_before is None:
            return {}
        now = counts.integers("contributions")
        return {name: count - self.counted_before.get(name, 0) for name, count in now.items()}

    @cached_property
    def coordinated(self) -> bool:
        """Whether a program's workers ran functions for its coordinator, which alone recorded them."""
        alone = not any(worker.windows for worker in self.workers if worker.name != self.chief.name)
        return self.program is not None and bool(self.contributions) and alone

    @property
    def contributions_counted(self) -> bool:
        """Whether the ps or a coordinator, which take no steps themselves, counted each worker's steps."""
        return self.coordinated or (self.program is None and bool(self.contributions))

    @cached_property
    def applied(self) -> Mapping[str, int]:
        """How many steps of each worker went into the model, if they were counted; else those it took."""
        if self.contributions_counted:
            workers = self.of_job("worker") if self.coordinated else self.workers
            return {worker.name: self.contributions.get(worker.name, 0) for worker in workers}
        return {worker.name: worker.local_steps for worker in self.workers}

    @cached_property
    def model(self) -> str:
        """The model's name by the chief's `started`, or else by settings.json; "" if neither has it.

        It is "" for a user's program, whatever that calls its model.
        """
        if self.program is not None:
            return ""
        for settings in reversed(self.chief.settings):
            if "model" in settings:
                return str(settings["model"])
        return str(self.training.get("model") or "")

    def of_job(self, job: str) -> tuple[TaskRecords, ...]:
        """Return the run's tasks of a job by index, even without records."""
        return tuple(self.task(task.name) for task in self.expected if task.job == job)

    def task(self, name: str) -> TaskRecords:
        """Return the records of a task, which may be none."""
        return self.tasks.get(name, TaskRecords(name))


def _was_stopped(life: Process) -> bool:
    return life.ending is not None and life.ending.text("reason") in STOPPED_REASONS


def _counts(value: object) -> tuple[int, ...] | None:
    whole = isinstance(value, list) and all(type(count) is int and count >= 0 for count in value)
    return tuple(value) if whole and isinstance(value, list) else None


def _finite(record: Record, name: str) -> float | None:
    number = record.number(name)
    return number if math.isfinite(number) else None
