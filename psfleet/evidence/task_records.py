"""The records of a task: its processes, and their windows of steps."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from trainer.contract.records import STOPPED_BY_HAND, STOPPED_REASONS, Record


@dataclass(frozen=True)
class Window:
    """Several consecutive local steps of a worker, from one event record `step`.

    - `local_step` is the worker's count of its steps after the last of them; `steps` is the number of steps,
      and `examples` the number of examples in them. The steps took `seconds`.
    - `before` and `after` are the global step before the first step and after the last.
    - `loss` is the loss of the last step, `loss_mean` the mean over all steps; nan if it was not finite, None
      if the program recorded none.
    - `staleness` is a histogram of gradients: `staleness[0]` missed no step of other workers, `staleness[b]`
      missed 2**(b-1) to 2**b - 1 steps. `own_steps_behind` gradients missed their worker's own last step,
      too.
    - `waiting_seconds` is the part of `seconds` in which the worker waited for others.
    - `unplaced` of the steps may have been made before `before` or after `after`.
    - `batches` were computed in these steps; `trained` of the steps changed the model.

    An optional value that the record lacks is None; `unplaced` and `own_steps_behind` are 0 then, and
    `batches` is `steps`.
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
    batches: int = 0
    trained: int | None = None

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
            trained=record.integer("trained") if "trained" in names else None,
            batches=record.integer("batches" if "batches" in names else "steps"),
        )


@dataclass(frozen=True)
class Process:
    """One process of a task, with its records from its `started` on. A restarted task has several.

    `records` has at least one record.
    """

    records: tuple[Record, ...]

    @cached_property
    def nonce(self) -> int | None:
        """The nonce that this process drew at its start; None if its `started` is missing."""
        first = self.records[0]
        return first.integer("nonce") if first.event == "started" else None

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The process's windows of steps, in the order of the records."""
        return tuple(Window.of(record) for record in self.records if record.event == "step")

    @cached_property
    def stretches(self) -> tuple[tuple[Window, ...], ...]:
        """The windows in groups; in a group, the global step did not go back and no session broke.

        Groups and windows are in the order of the records, and each group is as long as possible; () without
        windows.
        """
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
        """(first, last global step) of its windows; None if it has no windows and met no peers.

        Without windows, both are the global step at which it last met its peers (`peers_ready`).
        """
        if self.windows:
            return self.windows[0].before, self.windows[-1].after
        met = self.last("peers_ready")
        return (met.integer("global_step"), met.integer("global_step")) if met else None

    @cached_property
    def ending(self) -> Record | None:
        """Its last `finished` or `failed` record; None if it was killed, or if its records are cut."""
        return self.last("finished", "failed")

    @property
    def cut_off(self) -> bool:
        """Whether the process may have taken steps without a record: it recorded no end, or `failed`."""
        return self.ending is None or self.ending.event == "failed"

    @cached_property
    def evaluated(self) -> Record | None:
        """The process's last `evaluated` record; None if there is none."""
        return self.last("evaluated")

    def of(self, *events: str) -> tuple[Record, ...]:
        """Return the process's records of any of these events, in their order; () if there is none.

        Example: process.of("initialised", "restored")
        """
        return tuple(record for record in self.records if record.event in events)

    def last(self, *events: str) -> Record | None:
        """Return the process's last record of one of these events; None if there is none."""
        return next((record for record in reversed(self.records) if record.event in events), None)

    @property
    def local_steps(self) -> int:
        """The number of steps that this process took, by its windows and its `finished`; 0 without them.

        If they differ, the highest number counts.
        """
        counts = [window.local_step for window in self.windows]
        if self.ending is not None and self.ending.event == "finished" and "local_step" in self.ending.fields:
            counts.append(self.ending.integer("local_step"))
        return max(counts, default=0)


@dataclass(frozen=True)
class TaskRecords:
    """The records of one task, in the order of its file, without repetitions.

    `unreadable` and `foreign` describe, in sentences, what else is in its file: lines that cannot be read,
    and records of other tasks or runs. `repeated` is the number of records that appear again.
    """

    name: str
    records: tuple[Record, ...] = ()
    unreadable: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    repeated: int = 0

    @cached_property
    def processes(self) -> tuple[Process, ...]:
        """The processes of the task, in the order of its file; () without records.

        A process may come before one that began earlier: for example, the evaluator's processes of two parts.
        A new process begins at each `started`, and where the process id changes.
        """
        lives: list[list[Record]] = []
        for record in self.records:
            if record.event == "started" or not lives or record.pid != lives[-1][-1].pid:
                lives.append([])
            lives[-1].append(record)
        return tuple(Process(tuple(life)) for life in lives)

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The windows of all the task's processes, in the order of the records."""
        return tuple(window for process in self.processes for window in process.windows)

    @property
    def ending(self) -> Record | None:
        """The ending of the task's last process; None if that process recorded none, or without records.

        Processes at the end that were stopped before they met their peers do not count, if an earlier one met
        them.
        """
        lives = self.processes
        met = [life.last("peers_ready") is not None for life in lives]
        while any(met) and not met[len(lives) - 1] and _was_stopped(lives[-1]):
            lives = lives[:-1]
        return lives[-1].ending if lives else None

    @cached_property
    def whole(self) -> bool:
        """Whether the records are complete: an end, no unreadable line, and no gap in any process's steps.

        False also if a process lacks its `started`. If records are not complete, what is missing from them
        proves nothing. A task that is `whole` may still lack the last steps of a process that was killed
        before (`Process.cut_off`).
        """
        consistent = all(
            process.nonce is not None
            and process.local_steps == sum(window.steps for window in process.windows)
            for process in self.processes
        )
        return self.ending is not None and consistent and not self.unreadable

    @property
    def settings(self) -> tuple[Mapping[str, object], ...]:
        """The settings of each of its processes, from their `started`, in order.

        A process that recorded no settings is left out.
        """
        recorded = (record.fields.get("settings") for record in self.of("started"))
        return tuple(settings for settings in recorded if isinstance(settings, Mapping))

    @property
    def local_steps(self) -> int:
        """The sum of the steps that its processes took, as far as they recorded them."""
        return sum(process.local_steps for process in self.processes)

    @property
    def restarts(self) -> int:
        """The number of times that the task was started again, except to resume after a stop by people."""
        return sum(not stopped_by_hand(life.ending) for life in self.processes[:-1])

    def of(self, *events: str) -> tuple[Record, ...]:
        """Return the task's records of any of these events, in the order of its file; () if there is none."""
        return tuple(record for record in self.records if record.event in events)


def stopped_by_hand(ending: Record | None) -> bool:
    """Return whether people stopped the process that has this ending; False for None.

    The reason in the ending says so; an end by an error or by a finished run is no stop.
    """
    return ending is not None and ending.text("reason") == STOPPED_BY_HAND


def _was_stopped(life: Process) -> bool:
    return life.ending is not None and life.ending.text("reason") in STOPPED_REASONS


def _counts(value: object) -> tuple[int, ...] | None:
    whole = isinstance(value, list) and all(type(count) is int and count >= 0 for count in value)
    return tuple(value) if whole and isinstance(value, list) else None


def _finite(record: Record, name: str) -> float | None:
    number = record.number(name)
    return number if math.isfinite(number) else None
