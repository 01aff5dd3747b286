"""The start barrier: no worker trains before all tasks are there, and the missing tasks are named."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from trainer.contract.exit_codes import CLUSTER_BROKE, PEERS_MISSING
from trainer.contract.task_names import CHIEF
from trainer.coordination.bounded_calls import NO_ANSWER, call_within, is_lost_connection
from trainer.coordination.ledger import AT_START, Ledger, ServingPart
from trainer.coordination.ledger_parts import Note, PartStatus
from trainer.coordination.running_task import RunningTask
from trainer.coordination.session_watch import LostTask, SessionWatch
from trainer.coordination.task_notes import integer_in, require_equal_settings
from trainer.process.console import say
from trainer.process.failure import RunEnding, TaskFailure
from trainer.process.port_probes import Missing, in_a_line, probe_all

_POLL_SECONDS = 0.2
_SECONDS_TO_LINE_UP = 3.0
# A restarted ps has lost the workers' notes. Workers that are still alive report again within this time.
_SECONDS_TO_REPORT_AGAIN = 10.0


# Name of a task that serves -> its status.
Statuses = Mapping[str, PartStatus]
# The chief's function that sets the variables; `Barrier.wait` says what the arguments are.
Prepare = Callable[[Ledger, Statuses, Statuses], None]


@dataclass(frozen=True)
class Gathering:
    """The gathered tasks, as a worker finds them when the start barrier opens.

    Attributes:
        ledger: the ledger on the ps.
        ps_nonces: {ps: nonce that the chief drew for the ps}, such as {"ps0": 5}; {} in a local run.
        ps_own_nonces: {ps: nonce that the ps's process drew}; {} in a local run.
        worker_nonces: {worker: nonce that the worker's process drew}, of the workers that have reported.
        serving_notes: {task: note} of the tasks, other than the ps, that serve this client.
        last_step: the run's last global step, as the chief computed it.
        watch: watches all tasks while a session to them is at work.

    """

    ledger: Ledger
    ps_nonces: Mapping[str, int]
    ps_own_nonces: Mapping[str, int]
    worker_nonces: Mapping[str, int]
    serving_notes: Mapping[str, Note]
    last_step: int
    watch: SessionWatch


class _NotThere(Exception):  # noqa: N818 - not an error
    def __init__(self, missing: Iterable[Missing]) -> None:
        self.missing = list(missing)


class Barrier:
    """A worker's wait for the other tasks, at its start and again after the loss of a ps.

    `ledger` is None until the ps are reached, and after `drop_ledger`.
    """

    def __init__(self, task: RunningTask) -> None:
        self._task, self._cluster = task, task.cluster
        self._own_server = f"server{self._cluster.index}"
        self._serving_parts: dict[str, ServingPart] = {}
        # The time from which the deadline counts: the start of the wait, or the chief's last sign of work.
        self._since = 0.0
        self._beats: tuple[int, ...] = ()
        self.ledger: Ledger | None = None

    def wait(self, note: Note, prepare: Prepare | None, *, recovering: bool = False) -> Gathering:
        """Write `note` to ps 0, wait until all tasks are there and the variables are set; return the tasks.

        Only the chief has `prepare`, which sets the variables and makes the ps ready. Its arguments are the
        ledger, the statuses of the ps, and the statuses of the other tasks that serve this client. If the ps
        are ready already, it is not called, and nobody waits for workers.

        Not all workers must be there in these cases:

        - `absent` workers, which may join later, are never waited for.
        - With a `barrier_deadline_seconds` of 0, no worker is waited for.
        - After a loss (`recovering`), the run goes on after 10 s with the workers that are present.
        - An asynchronous run whose chief took part in it before goes on, after `barrier_deadline_seconds`,
          with the workers that are present.

        Raises TaskFailure: `peers_missing` after `seconds_to_gather`, or `cluster_broke` after
        `recovery_deadline_seconds` if `recovering`; `configuration` if the settings of tasks differ. Raises
        RunEnding and StopRequested. While the chief sets the variables there is no deadline.
        """
        since = self._since = time.monotonic()
        seconds_to_wait = self._task.seconds_to_gather
        if recovering:
            seconds_to_wait = self._task.settings.recovery_deadline_seconds
        patience = math.inf if self._task.settings.barrier_deadline_seconds else 0.0
        if self._task.took_part and self._cluster.replication == "async":
            patience = min(patience, self._task.patience_seconds)
        patience = _SECONDS_TO_REPORT_AGAIN if recovering else patience
        while True:
            self._task.raise_if_stopping()
            try:
                return self._gather(note, prepare, since + patience)
            except _NotThere as absent:
                missing = absent.missing
            except NO_ANSWER as error:
                if not is_lost_connection(error):
                    raise
                self.drop_ledger()
                missing = [self._missing(error.task if isinstance(error, LostTask) else "ps0")]
            self._task.progress.report_missing(missing, "Waiting for")
            waited_seconds = time.monotonic() - self._since
            if waited_seconds >= seconds_to_wait:
                waited = f"waited {waited_seconds:.0f} s for {in_a_line(missing)}"
                raise TaskFailure(CLUSTER_BROKE if recovering else PEERS_MISSING, waited)
            self._task.stop.wait(_POLL_SECONDS)

    def line_up(self, ledger: Ledger) -> None:
        """Wait until all workers that have reported have opened their sessions, so that they start together.

        Return after 3 s in any case. Raises StopRequested.
        """
        ledger.mark(AT_START)
        deadline = time.monotonic() + _SECONDS_TO_LINE_UP
        while ledger.marks().behind(AT_START) and time.monotonic() < deadline:
            self._task.raise_if_stopping()
            time.sleep(0.02)

    def reach_ledger(self, seconds: float) -> Ledger | None:
        """Return the ledger once all ps answer; None if they do not within `seconds`.

        This is for a task that ends before the barrier opens.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() <= deadline:
            with suppress(_NotThere):
                ledger = self._open_ledger()
                # A failed task reports its failure, even if another task has ended the run already.
                self._require_notes(self._read_statuses(ledger))
                return ledger
            time.sleep(_POLL_SECONDS)
        return None

    def drop_ledger(self) -> None:
        """Close and forget all sessions, because their tasks may be gone; return at once."""
        for session in (self.ledger, *self._serving_parts.values()):
            if session is not None:
                session.close()
        self.ledger, self._serving_parts = None, {}

    def end_serving_tasks(self, code: int, reason: str) -> None:
        """Tell the tasks, other than the ps, that serve this client to end; a task that is gone is left out.

        `code` is RUN_OVER, STOPPED or the exit code of a failure.
        """
        unreachable = self._unreachable(self._cluster.serving_tasks)
        if self._own_server in unreachable:  # all of this client's sessions go through it
            return
        for task in self._cluster.serving_tasks:
            if task in unreachable:
                continue
            try:
                self._serving_part(task).end(code, reason)
            except NO_ANSWER as error:
                say(f"{task} was not told to end: {type(error).__name__}")

    def _gather(self, note: Note, prepare: Prepare | None, waits_until: float) -> Gathering:
        ledger = self._open_ledger()
        statuses = self._statuses(ledger)
        notes = ledger.notes()
        if notes.get(self._cluster.index) != note:
            ledger.report(note)
            notes = ledger.notes()
        serving, silent = self._serving_statuses()
        others = {f"worker{worker}": other for worker, other in notes.items()}
        others |= {task: status.note for task, status in {**statuses, **serving}.items()}
        require_equal_settings(self._cluster.task, note, others)
        if silent:
            raise _NotThere(silent)
        watch = SessionWatch(self._task, ledger, self._serving_parts, {**statuses, **serving})
        if not all(status.ready for status in statuses.values()):
            awaited = set(self._cluster.clients) - set(self._cluster.absent)
            absent = sorted(awaited - notes.keys())
            if prepare is None:
                self._extend_while_chief_works(statuses)
            if absent and (prepare is None or time.monotonic() < waits_until):
                # Either nothing listens at the addresses of the absent workers, or these have not reported.
                listeners = [self._cluster.listener_of(worker) for worker in absent]
                silent_ports = self._unreachable(listeners)
                raise _NotThere(
                    silent_ports.get(listener) or self._missing(f"worker{worker}")
                    for worker, listener in zip(absent, listeners, strict=True)
                )
            if prepare is None:
                raise _NotThere([self._missing(CHIEF, "it is setting the variables")])
            set_variables = partial(prepare, ledger, statuses, serving)
            try:
                call_within(math.inf, set_variables, watch.update)
            finally:
                self._since = time.monotonic()
            # Another task may have given up meanwhile: then the run ends before it begins.
            statuses, notes = self._statuses(ledger), ledger.notes()
        last_step = integer_in(notes.get(0, note), "last_step")
        for task in serving:
            self._serving_part(task).set_ready(last_step)
        worker_notes = {f"worker{worker}": other for worker, other in notes.items()}
        worker_notes |= {task: status.note for task, status in serving.items() if task.startswith("worker")}
        ps_statuses = {} if self._cluster.is_local else statuses
        return Gathering(
            ledger=ledger,
            ps_nonces={ps: status.nonce for ps, status in ps_statuses.items()},
            ps_own_nonces={ps: integer_in(status.note, "nonce") for ps, status in ps_statuses.items()},
            worker_nonces={worker: integer_in(other, "nonce") for worker, other in worker_notes.items()},
            serving_notes={task: status.note for task, status in serving.items()},
            last_step=last_step,
            watch=watch,
        )

    def _extend_while_chief_works(self, statuses: Statuses) -> None:
        """Let the deadline count from now on if a beat of the chief has changed since the last call."""
        beats = tuple(status.beat for status in statuses.values())
        if beats != self._beats:
            self._since, self._beats = time.monotonic(), beats

    def _open_ledger(self) -> Ledger:
        """Return the ledger; if it is not open, open it. This does not wait.

        Raises _NotThere if a ps or this client's own server does not listen.
        """
        if self.ledger is None:
            unreachable = self._unreachable(self._cluster.listeners)
            if any(task.startswith("ps") or task == self._own_server for task in unreachable):
                raise _NotThere(unreachable.values())
            self.ledger = Ledger(self._task.target, self._cluster)
        return self.ledger

    def _serving_part(self, task: str) -> ServingPart:
        if task not in self._serving_parts:
            self._serving_parts[task] = ServingPart(self._task.target, self._cluster, task)
        return self._serving_parts[task]

    def _statuses(self, ledger: Ledger) -> Statuses:
        """Return {ps: status}. Raises RunEnding if a ps says that the run ends, and _NotThere."""
        statuses = self._read_statuses(ledger)
        for status in statuses.values():
            if status.end or status.stop:
                raise RunEnding(status.stop or status.end, status.stop_reason)
        self._require_notes(statuses)
        return statuses

    def _read_statuses(self, ledger: Ledger) -> Statuses:
        """Return {ps: status}, with the default status for a ps that does not answer."""
        count = len(self._cluster.ledger_devices)
        return {f"ps{ps}": _status_or_default(partial(ledger.status, ps)) for ps in range(count)}

    def _require_notes(self, statuses: Statuses) -> None:
        """Raise _NotThere if a ps has no note; then also close all sessions, because they may be dead."""
        silent = [self._missing(task) for task, status in statuses.items() if not status.note]
        if silent:
            self.drop_ledger()
            raise _NotThere(silent)

    def _serving_statuses(self) -> tuple[Statuses, list[Missing]]:
        """Return ({task: status}, missing tasks) of the tasks, other than the ps, that serve this client.

        A task is missing if it does not answer, has no note, or was told to end.
        """
        unreachable = self._unreachable(self._cluster.serving_tasks)
        statuses: dict[str, PartStatus] = {}
        silent = []
        for task in self._cluster.serving_tasks:
            status = PartStatus()
            if task not in unreachable:
                status = _status_or_default(self._serving_part(task).status)
            if status.note and not status.end:
                statuses[task] = status
                continue
            silent.append(unreachable.get(task) or self._missing(task))
            if task in self._serving_parts:
                self._serving_parts.pop(task).close()
        return statuses, silent

    def _unreachable(self, tasks: Iterable[str]) -> dict[str, Missing]:
        """Return {task: Missing} for the tasks, other than this one, whose port does not answer."""
        others = {task: self._cluster.address_of(task) for task in tasks if task != self._cluster.task}
        return {task: self._missing(task, reason) for task, reason in probe_all(others).items()}

    def _missing(self, task: str, reason: str = "its port answers but it has not reported") -> Missing:
        return Missing(task, self._cluster.address_of(task), reason)


def _status_or_default(read: Callable[[], PartStatus]) -> PartStatus:
    try:
        return read()
    except NO_ANSWER:
        return PartStatus()
