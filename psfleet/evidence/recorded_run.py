"""A run as its records describe it: its tasks, what they had to do, and what they did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from psfleet.evidence.endings import Ending
from psfleet.evidence.replication_rules import ReplicationRules
from psfleet.evidence.task_records import Process, TaskRecords, Window
from psfleet.inventory.success_policy import ALL_WORKERS, SuccessPolicy
from trainer.contract.model_card import Card
from trainer.contract.model_files import built_in_card, model_name
from trainer.contract.plan import ClusterPlan
from trainer.contract.records import Record
from trainer.contract.rules import SettingsError
from trainer.contract.run_tasks import SERVER, RunTask
from trainer.contract.settings import TrainingSettings
from trainer.contract.task_names import CHIEF, EVALUATOR_NAME


@dataclass(frozen=True)
class Run:
    """Everything that the checks judge.

    - `problem` says why the run cannot be judged, or is "".
    - `training` is the training part of settings.json, `program` its program (None for a model), `own_card`
      the card of the user's own model (None for other models), and `success` its training_run_success.
    - `rules` are the rules of its replication. `expected` are the tasks that the run has by its plan and
      settings.
    - `tasks` is {name: records of that task}, also of tasks that are not expected; these are in `unplanned`.
      `evaluator` has the records of the evaluator (trainer/evaluator.py), which is never one of `tasks`.
    - `endings` is {task: how it ended} by tasks.json; `unusable_endings` are sentences about entries that are
      invalid.
    - `lost` are workers without which the run ends well by `success` (lost_workers.py); `expected` lacks
      them.
    - `parts` are the parts of a run that went on with other tasks (parts.py), () for other runs. A part is a
      Run, too. It begins at `first_step`, when the gradients of each worker in the model were
      `counted_before` (None: unknown). Unless it `is_last`, it ends with `until`, the restore from which the
      next part goes on.
    """

    folder: Path
    run_id: str
    plan: ClusterPlan | None = None
    problem: str = ""
    training: Mapping[str, object] = field(default_factory=dict)
    program: Mapping[str, object] | None = None
    own_card: Card | None = None
    rules: ReplicationRules = field(default_factory=ReplicationRules)
    expected: tuple[RunTask, ...] = ()
    tasks: Mapping[str, TaskRecords] = field(default_factory=dict)
    evaluator: TaskRecords = field(default_factory=lambda: TaskRecords(EVALUATOR_NAME))
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
        """The records of the run's workers by index, a program's chief before them; without the lost workers.

        A worker without records is included, with an empty TaskRecords.
        """
        return (*self.of_job("chief"), *self.of_job("worker"))

    @cached_property
    def with_lost(self) -> tuple[TaskRecords, ...]:
        """The records of `workers`, then of the lost workers; a worker without records is included."""
        return (*self.workers, *(self.task(task.name) for task in self.lost))

    @cached_property
    def recorded_lost(self) -> tuple[TaskRecords, ...]:
        """The records of the lost workers that left records; the checks judge these, too."""
        return tuple(worker for task in self.lost if (worker := self.task(task.name)).records)

    @property
    def recorded_workers(self) -> tuple[TaskRecords, ...]:
        """The records of `workers` (also without records), then of the lost workers that left records."""
        return (*self.workers, *self.recorded_lost)

    def given_up(self, name: str) -> Ending | None:
        """Return the ending of a task that systemd calls failed and that recorded no end, else None."""
        by_systemd = self.endings.get(name)
        failed = by_systemd is not None and by_systemd.failed
        return by_systemd if failed and self.task(name).ending is None else None

    def is_lost(self, name: str) -> bool:
        """Return whether `name` is the name of a lost worker of the run (`lost`)."""
        return any(task.name == name for task in self.lost)

    @property
    def steps_made(self) -> int:
        """The number of global steps from the first step of the run, or part, to its last.

        This is `global_steps` minus `first_step`.
        """
        return self.global_steps - self.first_step

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The windows (`step` records) of all workers, also lost workers, worker by worker.

        For a run with parts, part by part.
        """
        if self.parts:
            return tuple(window for part in self.parts for window in part.windows)
        return tuple(window for worker in self.with_lost for window in worker.windows)

    @cached_property
    def whole(self) -> bool:
        """Whether the records of every worker are complete (`TaskRecords.whole`), apart from lost workers."""
        return all(worker.whole for worker in self.workers)

    @cached_property
    def ps(self) -> tuple[TaskRecords, ...]:
        """The records of the run's ps by index; those without records are included."""
        return self.of_job("ps")

    @cached_property
    def servers(self) -> tuple[TaskRecords, ...]:
        """The records of the existing servers, by the index of the client that connects to each.

        Servers without records are included; () if the run has no existing servers.
        """
        return self.of_job(SERVER)

    @property
    def clients(self) -> tuple[TaskRecords, ...]:
        """The workers that have sessions of their own: all; in-graph and local, only worker 0."""
        return self.workers[:1] if self.rules.one_client else self.workers

    @property
    def recorded_clients(self) -> tuple[TaskRecords, ...]:
        """The clients, then the lost workers that left records. A run with one client has no lost workers."""
        return (*self.clients, *self.recorded_lost)

    @property
    def chief(self) -> TaskRecords:
        """The records of worker 0; of a program, those of its lead."""
        return next(iter(self.of_job("chief")), self.task(CHIEF))

    @property
    def all_tasks(self) -> tuple[TaskRecords, ...]:
        """The records of every expected task, in the plan's order; those without records are included.

        Neither lost workers nor the evaluator are among them.
        """
        return tuple(self.task(task.name) for task in self.expected)

    @cached_property
    def final(self) -> Record | None:
        """The `finished` record with which the chief ended; None if it failed or recorded no end.

        Of a built-in model, it has the final global step and each worker's contribution; of a program, it may
        lack both.
        """
        ending = self.chief.ending
        return ending if ending is not None and ending.event == "finished" else None

    @cached_property
    def global_steps(self) -> int:
        """The final global step, from the chief's `finished`; without it, the highest in any window, or 0.

        Of a program, always the highest in any window. For a part that is not the last, it is the step of the
        restore that ends the part.
        """
        if self.until is not None:
            return self.until.integer("global_step")
        if self.final is not None and self.program is None:
            return self.final.integer("global_step")
        return max((window.after for window in self.windows), default=0)

    @cached_property
    def evaluation(self) -> Process | None:
        """The evaluator's process that counts: the last one that evaluated the last checkpoint.

        Among these, a process that recorded its end is preferred: everyone who watches a run starts the
        evaluator at its end, and the records may be collected in the meantime. If no process evaluated the
        last checkpoint, it is the evaluator's last process; None without any.
        """
        saved = [record.integer("global_step") for record in self.chief.of("checkpointed")][-1:]
        lives = self.evaluator.processes
        done = [life for life in lives if life.evaluated and life.evaluated.integer("global_step") in saved]
        ended = [life for life in done if life.ending]
        return (ended or done or lives or (None,))[-1]

    @property
    def last_step(self) -> int | None:
        """The global step at which the run was to end, from the chief's `finished`.

        None if the chief recorded no `finished`, or one without `last_step`.
        """
        is_recorded = self.final is not None and "last_step" in self.final.fields
        return self.final.integer("last_step") if self.final and is_recorded else None

    @cached_property
    def steps_requested(self) -> int | None:
        """The global step at which the settings ask the run to end; None if that is not known.

        It is `steps`; with `epochs`, it is computed from the number of examples in the chief's `finished`,
        and None without one.
        """
        if not self.training.get("epochs"):
            steps = self.training.get("steps")
            return steps if type(steps) is int else None
        if self.final is None or "train_examples" not in self.final.fields:
            return None
        try:
            settings = TrainingSettings.from_mapping(self.training)
        except SettingsError:
            return None
        workers = sum(task.job == "worker" for task in self.expected)
        return settings.last_step(workers, self.final.integer("train_examples"))

    @cached_property
    def contributions(self) -> Mapping[str, int]:
        """{worker: number of its gradients in the model}, as the ps or the coordinator counted them.

        In a part of a run, only the gradients of this part count. {} if unknown. Lost workers are included.
        """
        counts = self.until or self.final
        if counts is None or self.counted_before is None:
            return {}
        now = counts.integers("contributions")
        return {name: count - self.counted_before.get(name, 0) for name, count in now.items()}

    @cached_property
    def coordinated(self) -> bool:
        """Whether a program's coordinator recorded contributions, and no worker but the chief recorded steps.

        Always False for a built-in model.
        """
        alone = not any(worker.windows for worker in self.workers if worker.name != self.chief.name)
        return self.program is not None and bool(self.contributions) and alone

    @property
    def contributions_counted(self) -> bool:
        """Whether `contributions` are known, and counted by the ps or by a program's coordinator."""
        return self.coordinated or (self.program is None and bool(self.contributions))

    @cached_property
    def applied(self) -> Mapping[str, int]:
        """{worker: number of its steps in the model}, 0 for a worker that is not among the counts.

        If nobody counted them, it is the number of steps that each worker recorded. With a coordinator, the
        chief is left out; lost workers always are.
        """
        if self.contributions_counted:
            workers = self.of_job("worker") if self.coordinated else self.workers
            return {worker.name: self.contributions.get(worker.name, 0) for worker in workers}
        return {worker.name: worker.local_steps for worker in self.workers}

    @cached_property
    def model(self) -> str:
        """The model's name from the chief's last `started`, else from settings.json; "" for a program."""
        if self.program is not None:
            return ""
        of_chief = (str(own["model"]) for own in reversed(self.chief.settings) if "model" in own)
        return model_name(next(of_chief, str(self.training.get("model") or "")))

    @cached_property
    def card(self) -> Card | None:
        """The card of the run's model: the user's own in settings.json, else the built-in model's.

        None if neither is known, and for a user's program.
        """
        if self.own_card is not None:
            return self.own_card
        return (
            None if self.program is not None else built_in_card(str(self.training.get("model") or self.model))
        )

    def of_job(self, job: str) -> tuple[TaskRecords, ...]:
        """Return the records of the expected tasks of a job, such as "ps", in the plan's order.

        A task without records is included, a lost worker is not; () if no task has this job.
        """
        return tuple(self.task(task.name) for task in self.expected if task.job == job)

    def task(self, name: str) -> TaskRecords:
        """Return the records of the task `name`; without records, an empty TaskRecords."""
        return self.tasks.get(name, TaskRecords(name))
