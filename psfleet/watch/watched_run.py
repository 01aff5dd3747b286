"""The state of a watched run, updated by each poll of its hosts."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, Literal

from psfleet.run.places import is_elastic, may_be_away
from psfleet.watch.lead_host import LeadHost
from psfleet.watch.lead_reading import Reading
from psfleet.watch.live_block import CURVE_POINTS, Snapshot
from psfleet.watch.notices import DiskRoom, LeadRecords, Notice, Restarts, Standstill, Stragglers
from psfleet.watch.pace import Pace, RunHistory
from psfleet.watch.saves import Saves
from psfleet.watch.task_states import WAITED_FOR, TaskState
from psfleet.watch.unit_states import HUNG, Units, unit_states
from trainer.contract.progress import Progress
from trainer.contract.settings import TrainingSettings

# {replication: noun for what a worker contributes}, by default "steps". Here a global step takes several
# gradients.
UNITS = {"sync": "gradients", "in_graph": "gradients"}
# A host that did not answer in this many polls does not answer.
POLLS_OF_A_HOST = 3

# The fate of a run whose lead's host is silent. "unknown": it is not silent for long enough. "goes on":
# clients on other hosts go on. "over": no client goes on. "unwatched": no host answers; the watcher's own
# network may fail.
Fate = Literal["unknown", "goes on", "over", "unwatched"]


class WatchedRun:
    """A run that is watched; `run` is the result of decide_run. Times are seconds of a monotonic clock.

    The workers in `empty` of `run` are not in the run when the watch begins. `now` is the newest snapshot,
    `units` what is known of the units. `began` is when the run began, None before the first reading; set it
    if that is known better than from the age of the lead's process.
    """

    def __init__(self, run: Mapping[str, Any]) -> None:
        self._tasks: list[Mapping[str, Any]] = run["tasks"]
        self._program = bool(run["settings"]["program"])
        settings = TrainingSettings.from_mapping(run["settings"]["training"])
        self._unit = UNITS.get(settings.replication, "steps")
        lead = str(run["lead"]["name"])
        self.patience_seconds = settings.recovery_deadline_seconds
        elastic = is_elastic({"cluster": settings.as_dict(), "program": self._program})
        may_leave = {task["name"] for task in self._tasks if elastic and may_be_away(task)}
        hosts = {task["name"]: str(task["host"]) for task in self._tasks}
        self.units = Units(hosts, may_leave, empty=set(run.get("empty", ())))
        self._history, self._standstill = RunHistory(), Standstill()
        self._stragglers, self._restarts = Stragglers(self._unit), Restarts(lead)
        self._records, self._room = LeadRecords(lead), DiskRoom(str(run["lead"]["host"]))
        self._saves = Saves()
        self._lead_host = LeadHost(str(run["lead"]["host"]), lead, self.patience_seconds)
        self.began: float | None = None
        self.now = Snapshot(Progress("starting"), 0.0)

    def elapsed(self, at: float) -> float:
        """Return the seconds from the run's beginning to the time `at`; 0 before the first reading."""
        return at - self.began if self.began is not None else 0.0

    def add_units(self, host: str, answer: str, at: float) -> list[Notice]:
        """Record a host's output of `unit_commands` at the time `at`, and return notices.

        Invalid output is ignored, and [] is returned. `now` is not updated before the next reading of the
        lead.
        """
        with suppress(ValueError):
            states = unit_states([task for task in self._tasks if task["host"] == host], answer)
            saves = [note for task, state in states.items() for note in self._saves.update(task, state.saves)]
            self.units.rates |= {task: state.rate for task, state in states.items()}
            # Each poll of the lead's host reports its restarts already, but not that it hangs.
            lead = self._restarts.lead
            if lead in states and states[lead].trouble != HUNG:
                states.pop(lead)
            restarts = (
                self._restarts.count(task, state.restarts, state.why)
                for task, state in states.items()
                # For built-in models the chief reports worker restarts.
                if task != lead and (self._program or not task.startswith("worker"))
            )
            # The tasks of a built-in model all stay until the lead reports the end of the run.
            now = self.now.progress
            needed = states if now.phase in {"training", "waiting"} and not self._program else ()
            units = self.units.update(host, states, at, needed, now.global_step)
            return [*saves, *chain.from_iterable(restarts), *units]
        return []

    def add_silence(self, at: float, problem: str) -> list[Notice]:
        """Record that the lead's host did not answer by the time `at`, and return notices.

        `problem` says why, "" if unknown. The age and the absent tasks of `now` are updated.
        """
        notes = [*self._lead_host.record_silence(at, problem), *self.units.report_silent_hosts(at)]
        self.now = replace(self.now, elapsed=self.elapsed(at), away=self.units.away(at))
        return notes

    @property
    def waits_in_vain_for(self) -> list[Mapping[str, Any]]:
        """The tasks for whose end a program's lead waits, if all of them only serve and so never end.

        [] if one of them may end by itself, if the lead does not wait for tasks at its end, and for a
        built-in model.
        """
        now = self.now.progress
        awaited = [task for task in self._tasks if task["name"] in now.awaited_tasks]
        serve = len(awaited) == len(now.awaited_tasks) and now.awaited_tasks <= self.units.serving
        return awaited if self._program and now.phase == "ending" and serve else []

    def restarts_of(self, task: str) -> int:
        """Return how often systemd has restarted a task, as far as the watcher saw it; 0 if it never did."""
        return self._restarts.counts.get(task, 0)

    @property
    def parameters_lost(self) -> str:
        """The notice that systemd gave up a ps of a built-in model, so that no task can go on; else ""."""
        ps = (str(task["name"]) for task in self._tasks if task["role"] == "ps" and not self._program)
        return self.units.first_failure_of(ps)

    def fate(self, at: float, ask_seconds: float) -> Fate:
        """Return the fate of a run whose lead does not answer, as `Fate` lists them.

        "unknown": its host may still come back. "goes on": a client on another host runs. "over": other hosts
        answer, and no client runs there. "unwatched": no host answers. `ask_seconds` is the time between two
        polls.
        """
        if not self._lead_host.is_lost(at):
            return "unknown"
        answering = self.units.answering(at, POLLS_OF_A_HOST * ask_seconds) - {self._lead_host.host}
        clients = [task for task in self._tasks if task["role"] == "client" and task["host"] in answering]
        if any(self.units.goes_on(task["name"]) for task in clients):
            return "goes on"
        return "over" if answering else "unwatched"

    def add_reading(self, reading: Reading, at: float) -> list[Notice]:
        """Record a reading of the lead at the time `at`, update `now`, and return the new notices, or []."""
        answers_again = list(self._lead_host.record_answer(at))
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
            copied_steps=dict(self._records.copied_steps),
            workers=tuple(self._states(progress, pace, works=True)),
            serving=tuple(self._states(progress, pace, works=False)),
            unit=self._unit,
            full_disk_host=self._room.host if self._room.is_full else "",
            away=self.units.away(at),
        )
        return notes

    def _notes(self, reading: Reading, pace: Pace, at: float, *, fresh: bool) -> Iterator[Notice]:
        progress = reading.progress
        yield from self.units.report_silent_hosts(at)
        yield from self._room.update(reading.free_bytes)
        yield from self._restarts.update(progress, reading.restarts)
        yield from self._records.update(reading.records, progress.global_step)
        # On a full disk, the lead's reports stand still, although the run may go on. Another task, such as a
        # ps, may take all steps of a program.
        others_train = not progress.global_step and any(self.units.rates.values())
        if not (self._room.is_full or others_train):
            yield from self._standstill.update(progress, pace, at)
        if fresh:
            away = [task for task in self._tasks if task["name"] in self.units.empty]
            yield from self._stragglers.update(pace, {int(task["index"]) for task in away})

    def _states(self, progress: Progress, pace: Pace, *, works: bool) -> Iterator[TaskState]:
        counts, rates = (progress.contributions, pace.rates) if works else ((), ())
        # If one worker records steps, a worker without any has taken none.
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
        if name in progress.awaited_tasks:
            return WAITED_FOR
        if index not in self._stragglers.slow:
            return ""
        return "slow" if pace.rates[index : index + 1] != (0,) else "stands still"
