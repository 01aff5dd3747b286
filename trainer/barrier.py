"""The start barrier: no worker trains before every task is there, and whoever is missing is named."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial

import tensorflow as tf

from trainer.calls import CallTookTooLong
from trainer.console import say
from trainer.exit_codes import CLUSTER_BROKE, PEERS_MISSING
from trainer.failure import RunEnding, TaskFailure
from trainer.ledger import AT_START, Ledger, Note, PartStatus, ServedPart
from trainer.notes import compare, integer_in
from trainer.peers import is_lost_connection
from trainer.probes import Missing, probe_all
from trainer.reporting import Progress
from trainer.task import Task

_POLL_SECONDS = 0.2
_SECONDS_TO_LINE_UP = 3.0
_LINE_UP_POLL_SECONDS = 0.02
_SECONDS_BETWEEN_REPORTS = 2.0
# A ps that came back forgets who was there. The others report again within this time unless they are gone.
_SECONDS_TO_REPORT_AGAIN = 10.0
# How long to wait for the ps where the setting says not to wait for workers.
DEADLINE_WITHOUT_BARRIER = 120.0

_NOT_REPORTED = "its port answers but it has not reported"

Statuses = Mapping[str, PartStatus]
Prepare = Callable[[Ledger, Statuses, Statuses], None]


@dataclass(frozen=True)
class Gathering:
    """Everyone is there: the nonces of each, and the last step of the run as the chief has set it.

    `served` has the note of each task beside the ps that serves this client.
    """

    ledger: Ledger
    ps_nonces: Mapping[str, int]
    worker_nonces: Mapping[str, int]
    served: Mapping[str, Note]
    last_step: int
    waited_seconds: float


class Barrier:
    """A worker's way to the others, at its start and again after a ps was lost."""

    def __init__(self, task: Task, target: str, progress: Progress) -> None:
        """Take the task, where its sessions go, and where to tell who is missing."""
        self._task, self._target, self._progress = task, target, progress
        self._cluster = task.cluster
        self._ledger: Ledger | None = None
        self._served: dict[str, ServedPart] = {}

    @property
    def ledger(self) -> Ledger | None:
        """The ledger as far as the ps have been reached."""
        return self._ledger

    def wait(self, note: Note, prepare: Prepare | None, *, recovering: bool = False) -> Gathering:
        """Leave `note` on ps 0 and return when everyone is there and the variables are set.

        `prepare` is the chief's: it sets the variables and makes the ps ready. It is told what the ps and
        the other tasks that serve this client hold about themselves.
        After a loss (`recovering`) other workers need not be there: the run goes on with those who are.
        Raises TaskFailure past the deadline or where tasks differ, RunEnding and StopRequested.
        """
        since = time.monotonic()
        setting = self._task.settings.barrier_deadline_seconds
        deadline = since + (setting or DEADLINE_WITHOUT_BARRIER)
        waits_for_workers = math.inf if setting else 0.0
        patience = _SECONDS_TO_REPORT_AGAIN if recovering else waits_for_workers
        told: tuple[float, list[Missing]] = (0.0, [])
        while True:
            self._task.raise_if_stopping()
            found = self._look(note, prepare, since, patience)
            if isinstance(found, Gathering):
                return found
            told = self._tell(found, told)
            if time.monotonic() >= deadline:
                code = CLUSTER_BROKE if recovering else PEERS_MISSING
                names = "; ".join(str(missing) for missing in found)
                raise TaskFailure(code, f"waited {time.monotonic() - since:.0f} s for {names}")
            self._task.stop.wait(_POLL_SECONDS)

    def line_up(self, ledger: Ledger) -> None:
        """Wait a moment, with the session open, for those who are still opening theirs; all start at once."""
        ledger.mark(AT_START)
        deadline = time.monotonic() + _SECONDS_TO_LINE_UP
        while ledger.marks().behind(AT_START) and time.monotonic() < deadline:
            self._task.raise_if_stopping()
            time.sleep(_LINE_UP_POLL_SECONDS)

    def reach_ledger(self, seconds: float) -> Ledger | None:
        """The ledger for a task that leaves before it has met the others; None where the ps do not answer."""
        deadline = time.monotonic() + seconds
        while not self._ps_answer():
            if time.monotonic() > deadline:
                return None
            time.sleep(_POLL_SECONDS)
        return self._ledger

    def _ps_answer(self) -> bool:
        if self._ledger is None:
            if self._unreachable(self._needed("ps", "server")):
                return False
            self._ledger = Ledger(self._target, self._cluster)
        # Whoever fails tells so, also where another has ended the run already.
        if all(status.note for status in self._read_statuses(self._ledger).values()):
            return True
        self.drop_ledger()
        return False

    def drop_ledger(self) -> None:
        """Forget sessions to tasks that may be gone."""
        for session in (self._ledger, *self._served.values()):
            if session is not None:
                session.close()
        self._ledger, self._served = None, {}

    def end_served(self, code: int, reason: str) -> None:
        """Tell the tasks beside the ps that serve this client to end, as far as they can be reached."""
        unreachable = {missing.task for missing in self._unreachable(self._needed("worker", "server"))}
        own = f"server{self._cluster.index}"
        if own in unreachable:  # every session goes through it
            return
        for task in self._cluster.served:
            if task in unreachable:
                continue
            try:
                self._served_part(task).end(code, reason)
            except (tf.errors.OpError, CallTookTooLong) as error:
                say(f"{task} was not told to end: {type(error).__name__}")

    def _needed(self, *jobs: str) -> dict[str, str]:
        """The tasks of these jobs that this client's sessions need -> address."""
        return {
            task: address
            for task, address in self._cluster.listeners.items()
            if task.startswith(jobs) and (task.startswith("ps") or task in self._cluster.served)
        }

    def _served_part(self, task: str) -> ServedPart:
        if task not in self._served:
            self._served[task] = ServedPart(self._target, self._cluster, task)
        return self._served[task]

    def _look(
        self, note: Note, prepare: Prepare | None, since: float, patience: float
    ) -> Gathering | list[Missing]:
        if self._ledger is None:
            unreachable = self._unreachable(self._cluster.listeners)
            needed = self._needed("ps", "server")
            if any(missing.task in needed for missing in unreachable):
                return unreachable
            self._ledger = Ledger(self._target, self._cluster)
        try:
            return self._read(self._ledger, note, prepare, since, patience)
        except (tf.errors.OpError, CallTookTooLong) as error:
            if not is_lost_connection(error):
                raise
            self.drop_ledger()
            return [self._missing("ps0", _NOT_REPORTED)]

    def _read(
        self, ledger: Ledger, note: Note, prepare: Prepare | None, since: float, patience: float
    ) -> Gathering | list[Missing]:
        statuses = self._statuses(ledger)
        silent = self._silent(statuses)
        if silent:
            return silent
        notes = ledger.notes()
        if notes.get(self._cluster.index) != note:
            ledger.report(note)
            notes = ledger.notes()
        served, silent = self._served_statuses()
        others = {f"worker{worker}": of for worker, of in notes.items()}
        others |= {task: status.note for task, status in {**statuses, **served}.items()}
        compare(self._cluster.task, note, others)
        if silent:
            return silent
        if not all(status.ready for status in statuses.values()):
            absent = self._absent(notes)
            if prepare is None:
                chief = [self._missing("worker0", "it is setting the variables")]
                return self._with_reasons(absent) if absent else chief
            if absent and time.monotonic() - since < patience:
                return self._with_reasons(absent)
            prepare(ledger, statuses, served)
            # Someone may have given up meanwhile: then the run ends before it begins.
            statuses = self._statuses(ledger)
            silent = self._silent(statuses)
            if silent:
                return silent
            notes = ledger.notes()
        last_step = integer_in(notes.get(0, note), "last_step")
        for task in served:
            self._served_part(task).set_ready(last_step)
        of_workers = {f"worker{worker}": of for worker, of in notes.items()}
        of_workers |= {task: status.note for task, status in served.items() if task.startswith("worker")}
        return Gathering(
            ledger=ledger,
            ps_nonces={} if self._cluster.is_local else {ps: of.nonce for ps, of in statuses.items()},
            worker_nonces={worker: integer_in(of, "nonce") for worker, of in of_workers.items()},
            served={task: status.note for task, status in served.items()},
            last_step=last_step,
            waited_seconds=time.monotonic() - since,
        )

    def _statuses(self, ledger: Ledger) -> dict[str, PartStatus]:
        """What each ps holds; nothing of one that does not answer. Raises RunEnding where one says so."""
        statuses = self._read_statuses(ledger)
        for status in statuses.values():
            if status.end or status.stop:
                raise RunEnding(status.stop or status.end, status.stop_reason)
        return statuses

    def _read_statuses(self, ledger: Ledger) -> dict[str, PartStatus]:
        """What each ps holds, also where the run ends; nothing of one that does not answer."""
        tasks = range(len(self._cluster.ledger_devices))
        return {f"ps{ps}": _status_or_nothing(partial(ledger.status, ps)) for ps in tasks}

    def _served_statuses(self) -> tuple[dict[str, PartStatus], list[Missing]]:
        """What each task beside the ps holds that serves this client, and those that are not there."""
        unreachable = {
            missing.task: missing for missing in self._unreachable(self._needed("worker", "server"))
        }
        statuses: dict[str, PartStatus] = {}
        silent = []
        for task in self._cluster.served:
            status = _NOTHING
            if task not in unreachable:
                status = _status_or_nothing(self._served_part(task).status)
            if status.note and not status.end:
                statuses[task] = status
                continue
            silent.append(unreachable.get(task) or self._missing(task, _NOT_REPORTED))
            if task in self._served:
                self._served.pop(task).close()
        return statuses, silent

    def _silent(self, statuses: Statuses) -> list[Missing]:
        """Those that have left no note; then all sessions are forgotten, for theirs may be dead."""
        silent = [self._missing(task, _NOT_REPORTED) for task, status in statuses.items() if not status.note]
        if silent:
            self.drop_ledger()
        return silent

    def _absent(self, notes: Mapping[int, Note]) -> list[int]:
        return [worker for worker in self._cluster.clients if worker not in notes]

    def _with_reasons(self, workers: Iterable[int]) -> list[Missing]:
        """Why these clients are not there: nothing listens for them, or they have not reported."""
        listeners = {worker: self._cluster.listener_of(worker) for worker in workers}
        unreachable = self._unreachable({task: self._cluster.address_of(task) for task in listeners.values()})
        reasons = {missing.task: missing for missing in unreachable}
        return [
            reasons.get(listener) or self._missing(f"worker{worker}", _NOT_REPORTED)
            for worker, listener in listeners.items()
        ]

    def _unreachable(self, addresses: Mapping[str, str]) -> list[Missing]:
        others = {task: address for task, address in addresses.items() if task != self._cluster.task}
        return [Missing(task, others[task], reason) for task, reason in probe_all(others).items()]

    def _missing(self, task: str, reason: str) -> Missing:
        return Missing(task, self._cluster.address_of(task), reason)

    def _tell(self, found: list[Missing], told: tuple[float, list[Missing]]) -> tuple[float, list[Missing]]:
        """Print the list when it changes; the watchdog and `progress.json` hear of it every 2 s."""
        when, before = told
        if found != before:
            say(f"Waiting for {'; '.join(str(missing) for missing in found)}")
        elif time.monotonic() < when + _SECONDS_BETWEEN_REPORTS:
            return told
        self._progress.missing = [asdict(missing) for missing in found]
        self._progress.change("waiting")
        return time.monotonic(), found


_NOTHING = PartStatus(ready=False, stop=0, end=0, nonce=0, last_step=0, stop_reason="", note={})


def _status_or_nothing(read: Callable[[], PartStatus]) -> PartStatus:
    try:
        return read()
    except (tf.errors.OpError, CallTookTooLong):
        return _NOTHING
