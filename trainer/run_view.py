"""What is shown of a run, from one look at its lead to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainer.progress import Progress
from trainer.progress_block import CURVE_POINTS, View
from trainer.progress_history import History, Pace
from trainer.progress_notes import LeadRecords, Note, Restarts, Standstill, Stragglers
from trainer.progress_tasks import TaskState
from trainer.run_watch import Listeners, Reading
from trainer.settings import TrainingSettings

# What a worker's contributions are: in the last two all of them go into each global step.
UNITS = {"sync": "gradients", "in_graph": "gradients"}


class RunView:
    """One run, watched. `run` is as decide_run returns it; all times are of the watcher's monotonic clock."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        """Begin to watch."""
        self._tasks: list[Mapping[str, Any]] = run["tasks"]
        self._program = bool(run["settings"]["program"])
        settings = TrainingSettings.from_mapping(run["settings"]["training"])
        self._unit = UNITS.get(settings.replication, "steps")
        lead = str(run["lead"]["name"])
        # A program is judged by its traffic, which must be its own alone.
        looked_at = [] if self._program else self._tasks
        self.listeners = Listeners({task["name"]: task["address"] for task in looked_at})
        self._history, self._standstill = History(), Standstill()
        self._stragglers, self._restarts = Stragglers(self._unit), Restarts(lead)
        self._records = LeadRecords(lead)
        self._began: float | None = None
        self._looked: float | None = None
        self.now = View(Progress("starting"), 0.0)

    def began(self, at: float) -> None:
        """Note when the run began, where that is known better than by the age of the lead's process."""
        self._began = at

    @property
    def is_timed(self) -> bool:
        """Whether it is known when the run began."""
        return self._began is not None

    def elapsed(self, at: float) -> float:
        """How long the run has been going on, in seconds."""
        return at - self._began if self._began is not None else 0.0

    def probed(self, silent: Mapping[str, object], at: float) -> list[Note]:
        """Take which tasks' ports do not answer (task -> reason)."""
        self._looked = at
        return self.listeners.look(silent)

    def look(self, reading: Reading, at: float) -> list[Note]:
        """Take a reading: `now` shows it from here on. Return what people should hear of."""
        progress = reading.progress
        if self._began is None:
            self._began = at - (progress.elapsed or 0.0)
        fresh = self._history.add(progress)
        pace = self._history.pace() if progress.phase == "training" else Pace()
        notes = list(self._notes(reading, pace, at, fresh=fresh))
        self.now = View(
            progress=progress,
            elapsed=self.elapsed(at),
            pace=pace,
            trend=self._history.trend(),
            curve=self._history.curve(CURVE_POINTS),
            still_seconds=self._standstill.seconds(at),
            saved_step=self._records.saved_step,
            workers=tuple(self._workers(progress, pace)),
            serving=tuple(self._serving()),
            looked_seconds=None if self._looked is None else at - self._looked,
            unit=self._unit,
        )
        return notes

    def _notes(self, reading: Reading, pace: Pace, at: float, *, fresh: bool) -> Iterator[Note]:
        progress = reading.progress
        yield from self._restarts.look(progress, reading.restarts)
        yield from self._records.look(reading.records, progress.global_step)
        yield from self._standstill.look(progress, pace, at)
        if fresh:
            yield from self._stragglers.look(pace)

    def _workers(self, progress: Progress, pace: Pace) -> Iterator[TaskState]:
        total = sum(progress.contributions)
        waited_for = {task.partition(" ")[0] for task in progress.missing}
        for task in self._tasks:
            if task["job"] != "worker" or (self._program and not progress.contributions):
                continue
            index, name = int(task["index"]), str(task["name"])
            known = index < len(progress.contributions)
            count = progress.contributions[index] if known else None
            yield TaskState(
                name=name,
                host=str(task["host"]),
                address=str(task["address"]),
                rate=pace.rates[index] if index < len(pace.rates) else None,
                share=count / total if total and count is not None else None,
                contributed=count,
                restarts=self._restarts.counts.get(name, 0),
                trouble=self._trouble(name, index, waited_for, pace),
                answers=self.listeners.answers(name),
            )

    def _trouble(self, name: str, index: int, waited_for: set[str], pace: Pace) -> str:
        if self.listeners.answers(name) is False:
            return "no answer"
        if name in waited_for:
            return "waited for"
        if index not in self._stragglers.slow:
            return ""
        return "slow" if pace.rates[index : index + 1] != (0,) else "stands still"

    def _serving(self) -> Iterator[TaskState]:
        for task in self._tasks:
            if task["job"] == "worker":
                continue
            answers = self.listeners.answers(task["name"])
            yield TaskState(
                name=str(task["name"]),
                host=str(task["host"]),
                address=str(task["address"]),
                trouble="no answer" if answers is False else "",
                answers=answers,
            )
