"""What is shown of a run, from one look at its lead to the next."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, Literal

from psfleet.watch.lead_host import LeadHost
from psfleet.watch.lead_reading import Reading
from psfleet.watch.live_block import CURVE_POINTS, Snapshot
from psfleet.watch.notices import LeadRecords, Notice, Restarts, Room, Standstill, Stragglers
from psfleet.watch.pace import Pace, RunHistory
from psfleet.watch.saves import Saves
from psfleet.watch.task_states import WAITED_FOR, TaskState
from psfleet.watch.unit_states import Units, unit_states
from trainer.contract.progress import Progress
from trainer.contract.settings import TrainingSettings

# What a worker's contributions are: in the last two all of them go into each global step.
UNITS = {"sync": "gradients", "in_graph": "gradients"}
# In which a host that answers has answered at least once.
LOOKS_OF_A_HOST = 3

# Of a run whose lead's host is silent: for too short to say; its clients on other hosts go on, or there is
# none; or no host answers, as where the watcher's own network is away.
Fate = Literal["unknown", "goes on", "over", "unwatched"]


class WatchedRun:
    """One run, watched. `run` is as decide_run returns it; all times are of the watcher's monotonic clock.

    `began` is when the run began, to be set where that is known better than by the age of the lead's process.
    """

    def __init__(self, run: Mapping[str, Any]) -> None:
        self._tasks: list[Mapping[str, Any]] = run["tasks"]
        self._program = bool(run["settings"]["program"])
        settings = TrainingSettings.from_mapping(run["settings"]["training"])
        self._unit = UNITS.get(settings.replication, "steps")
        lead = str(run["lead"]["name"])
        self.units = Units({task["name"]: str(task["host"]) for task in self._tasks})
        self._history, self._standstill = RunHistory(), Standstill()
        self._stragglers, self._restarts = Stragglers(self._unit), Restarts(lead)
        self._records, self._room = LeadRecords(lead), Room(str(run["lead"]["host"]))
        self._saves = Saves()
        self._lead_host = LeadHost(str(run["lead"]["host"]), lead)
        self.began: float | None = None
        self.now = Snapshot(Progress("starting"), 0.0)

    def elapsed(self, at: float) -> float:
        """How long the run has been going on, in seconds."""
        return at - self.began if self.began is not None else 0.0

    def asked(self, host: str, answer: str, at: float) -> list[Notice]:
        """Take what a host printed of the units of its tasks. What is no answer counts as none."""
        with suppress(ValueError):
            states = unit_states([task for task in self._tasks if task["host"] == host], answer)
            saves = [note for task, state in states.items() for note in self._saves.look(task, state.saves)]
            self.units.rates |= {task: state.rate for task, state in states.items()}
            # Of the lead is read at each look.
            states.pop(self._restarts.lead, None)
            restarts = (
                self._restarts.count(task, state.restarts, state.why)
                for task, state in states.items()
                # Those of workers are told by the chief of a model.
                if self._program or not task.startswith("worker")
            )
            # Of a model all stay until the lead says that its run ends.
            now = self.now.progress
            needed = states if now.phase == "training" and not self._program else ()
            units = self.units.answered(host, states, at, needed, now.global_step)
            return [*saves, *chain.from_iterable(restarts), *units]
        return []

    def unread(self, at: float, problem: str) -> list[Notice]:
        """Take that the lead's host has not been read, with what is known of why. Return what to tell."""
        return [*self._lead_host.look(at, problem), *self.units.look(at)]

    def fate(self, at: float, ask_seconds: float) -> Fate:
        """Return what becomes of a run whose lead is not read; hosts are asked every so many seconds."""
        if not self._lead_host.is_lost(at):
            return "unknown"
        answering = self.units.answering(at, LOOKS_OF_A_HOST * ask_seconds) - {self._lead_host.host}
        clients = [task for task in self._tasks if task["role"] == "client" and task["host"] in answering]
        if any(self.units.goes_on(task["name"]) for task in clients):
            return "goes on"
        return "over" if answering else "unwatched"

    def look(self, reading: Reading, at: float) -> list[Notice]:
        """Take a reading: `now` shows it from here on. Return what people should hear of."""
        answers_again = list(self._lead_host.answered(at))
        progress = reading.progress
        if self.began is None:
            self.began = at - (progress.elapsed or 0.0)
        fresh = self._history.add(progress)
        pace = self._history.pace() if progress.phase == "training" else Pace()
        notes = [*answers_again, *self._notes(reading, pace, at, fresh=fresh)]
        self.now = Snapshot(
            progress=progress,
            elapsed=self.elapsed(at),
            pace=pace,
            trend=self._history.trend(),
            curve=self._history.curve(CURVE_POINTS),
            still_seconds=self._standstill.seconds(at),
            saved_step=self._records.saved_step,
            workers=tuple(self._states(progress, pace, works=True)),
            serving=tuple(self._states(progress, pace, works=False)),
            unit=self._unit,
            lacks_room_on=self._room.host if self._room.lacks else "",
        )
        return notes

    def _notes(self, reading: Reading, pace: Pace, at: float, *, fresh: bool) -> Iterator[Notice]:
        progress = reading.progress
        yield from self.units.look(at)
        yield from self._room.look(reading.free_bytes)
        yield from self._restarts.look(progress, reading.restarts)
        yield from self._records.look(reading.records, progress.global_step)
        # Where the disk is full, what the lead tells stands still, not the run.
        if not self._room.lacks:
            yield from self._standstill.look(progress, pace, at)
        if fresh:
            yield from self._stragglers.look(pace)

    def _states(self, progress: Progress, pace: Pace, *, works: bool) -> Iterator[TaskState]:
        counts, rates = (progress.contributions, pace.rates) if works else ((), ())
        # Where one worker records steps, another that does not has taken none.
        workers = (str(task["name"]) for task in self._tasks if task["job"] == "worker")
        recorded = any(self.units.rates.get(worker) is not None for worker in workers)
        for task in self._tasks:
            index, name = int(task["index"]), str(task["name"])
            rate = rates[index] if index < len(rates) else self.units.rates.get(name)
            known = counts or self.units.troubles.get(name) or recorded
            if (task["job"] == "worker") != works or (works and self._program and not known):
                continue
            count = counts[index] if index < len(counts) else None
            yield TaskState(
                name=name,
                host=str(task["host"]),
                address=str(task["address"]),
                rate=rate if works else None,
                share=count / sum(counts) if count is not None and any(counts) else None,
                contributed=count,
                restarts=self._restarts.counts.get(name, 0),
                trouble=self._trouble(task, progress, pace),
                runs=name in self.units.running,
            )

    def _trouble(self, task: Mapping[str, Any], progress: Progress, pace: Pace) -> str:
        name, index = str(task["name"]), int(task["index"])
        if trouble := self.units.troubles.get(name):
            return trouble
        if task["job"] != "worker":
            return ""
        if name in progress.awaited:
            return WAITED_FOR
        if index not in self._stragglers.slow:
            return ""
        return "slow" if pace.rates[index : index + 1] != (0,) else "stands still"
