"""The chief's duties: worker 0 sets the variables, saves checkpoints, evaluates, and ends the run."""

import time
from collections.abc import Mapping, Sequence

from trainer.contract.records import draw_nonce
from trainer.contract.task_names import split_name
from trainer.coordination.bounded_calls import NO_ANSWER
from trainer.coordination.ledger import LEAVING, Ledger
from trainer.coordination.ledger_parts import GLOBAL_STEP
from trainer.coordination.running_task import RunningTask
from trainer.coordination.start_barrier import Gathering, Statuses
from trainer.coordination.task_notes import integer_in
from trainer.engine.training import TrainingGraph, TrainingSession
from trainer.model.checkpoints import Checkpoint, contributions_in, is_of_ended_run
from trainer.model.pieces import holder_of, name_of
from trainer.process.console import say
from trainer.task.evaluations import Evaluations
from trainer.task.saving import CheckpointSaver

_SECONDS_BETWEEN_READINGS = 2.0
_RESTORES = 3


class Chief:
    """The duties of worker 0.

    `summary_lines` are [] until `end` has evaluated the final model; then they are lines to print about that.
    """

    def __init__(self, task: RunningTask, graph: TrainingGraph) -> None:
        """Prepare the duties; touch no variable.

        Raises TaskFailure (`input`) if the folder of checkpoints cannot be used.
        """
        self._task, self._graph = task, graph
        # Worker -> its last nonce. If the nonce changes, the worker was started again.
        self._nonces: dict[str, int] = {}
        self._next_reading = 0.0
        self._ledger: Ledger | None = None
        self._session: TrainingSession | None = None
        self.saver = CheckpointSaver(task, graph)
        self.evaluations = Evaluations(task, self.saver)
        self.summary_lines: list[str] = []

    def prepare(self, ledger: Ledger, statuses: Statuses, serving: Statuses) -> None:
        """Restore the newest good checkpoint, or initialise the variables; save; then let all tasks start.

        `statuses` is {ps: status}; a ps that is not ready was lost or has just begun. Such ps may restore
        their parts alone (`_restore_alone`). `serving` is {task: status} of the other tasks that serve the
        chief.
        """
        self._graph.use_notes({task: status.note for task, status in serving.items()})
        if self._session is not None:
            self._session.close()
        self._session = session = self._graph.session(self._task.target)
        lost = [ps for ps, status in statuses.items() if not status.ready]
        step = self._restore_alone(session, lost)
        if step is None:
            ledger.clear_ready()
            step = self._set_all(session, ledger)
        self._task.progress.global_step = step
        self.saver.start(session, step)
        self.evaluations.start(step)
        ledger.set_ready([status.nonce or draw_nonce() for status in statuses.values()])

    def _set_all(self, session: TrainingSession, ledger: Ledger) -> int:
        """Set all variables: from the newest good checkpoint, or to their first values if there is none.

        Return the global step from which the run goes on: the checkpoint's, or 0.
        """
        are_new = session.create()
        checkpoint = self.saver.newest_checkpoint()
        fields: dict[str, object] = {"ps_parameters": self._parameters()}
        if checkpoint is None:
            if are_new:
                session.set_first_values()
            else:
                session.initialise()
            say("The variables have their first values: there is no checkpoint of this run.")
            self._task.records.write("initialised", {"global_step": 0, **fields})
        else:
            fingerprint = self._restore(session, checkpoint)
            say(f"Restored {checkpoint.path}: going on from global step {checkpoint.global_step}.")
            restored = {"global_step": checkpoint.global_step, "checkpoint": str(checkpoint.path)}
            fields |= {"contributions": contributions_in(checkpoint)}
            fields |= {"fingerprint": fingerprint} if fingerprint else {}
            self._task.records.write("restored", restored | fields)
            # If a run ended early, its last checkpoint says so; then the run is over.
            if self._task.settings.stop_when and is_of_ended_run(checkpoint):
                ledger.take_no_more_steps()
        step = checkpoint.global_step if checkpoint else 0
        self._task.progress.steps_lost += max(self._task.progress.global_step - step, 0)
        return step

    def _restore_alone(self, session: TrainingSession, lost: Sequence[str]) -> int | None:
        """Restore only the variables on the ps `lost`; return the present global step, which stays.

        Return None, with no value restored, if all ps have to restore:

        - `ps_recovery` is not "partial";
        - ps 0, which has the counters, was lost;
        - this process has not saved the newest checkpoint, so it does not know what each ps held of it;
        - no step was taken since the checkpoint, so nothing is lost if all ps go back.
        """
        if self._task.settings.ps_recovery != "partial" or "ps0" in lost:
            return None
        global_step = session.counters()[GLOBAL_STEP]
        session.create(lost)
        checkpoint = self.saver.newest_checkpoint(lost)
        if checkpoint is None or checkpoint.global_step not in self.saver.own_steps - {global_step}:
            return None
        session.restore(checkpoint, lost)
        self.saver.tables.restore(session.session, checkpoint, lost)
        path, step = checkpoint.path, checkpoint.global_step
        at = {"global_step": global_step, "checkpoint": str(path), "checkpoint_step": step}
        for ps, fingerprint in session.ps_fingerprints(lost).items():
            say(f"{ps} alone restored its part of {path}: going on from global step {global_step}.")
            self._task.records.write("ps_restored", {**at, "task": ps, "fingerprint": fingerprint})
        return global_step

    def _restore(self, session: TrainingSession, checkpoint: Checkpoint) -> str:
        """Restore a checkpoint; return the fingerprint of the variables afterwards, "" if it is unknown.

        It is unknown if it could not be read, and if this run has other variables than the checkpoint, as an
        optimizer has with another number of ps: then the two fingerprints could not be compared. If the
        fingerprint differs from the checkpoint's, restore again, three times in all.
        """
        fingerprint = ""
        names = {*checkpoint.values, *(table.layout.table for table in checkpoint.tables)}
        are_same = {name_of(variable) for variable in self._graph.variables} == names
        # A push that a worker began earlier may arrive after the restored values; then restore them again.
        for _ in range(_RESTORES):
            session.restore(checkpoint)
            self.saver.tables.restore(session.session, checkpoint)
            read = session.fingerprint() if are_same else None
            fingerprint = read[0] if read else ""
            if not are_same or fingerprint == checkpoint.fingerprint:
                break
        return fingerprint

    def meet(self, gathering: Gathering) -> TrainingSession | None:
        """Remember the ledger and the workers' nonces; return the session that set the variables.

        The caller takes steps with this session. Return None if `prepare` was not called since the last call:
        the variables were set already.
        """
        self._ledger = gathering.ledger
        self._count_restarts(gathering.worker_nonces)
        session, self._session = self._session, None
        return session

    def work_if_due(self, session: TrainingSession, global_step: int) -> None:
        """Save, start an evaluation, and look for restarted workers: each only if it is due.

        If an evaluation has met the user's condition, let the run take no more steps. Raises TaskFailure, and
        tf.errors.OpError if a ps is lost.
        """
        self.saver.save_if_due(session, global_step)
        if self.evaluations.work(session, global_step) and self._ledger is not None:
            self._ledger.take_no_more_steps()
        # A worker that starts again only writes its note to ps 0: the chief has to read the notes.
        if time.monotonic() >= self._next_reading:
            self._find_restarts()

    def steps_left(self, global_step: int) -> float:
        """Return the global steps until a save or an evaluation is due by steps; 0 or less if one is due now.

        Infinity means that none can become due as things are now; ask again after the next steps.
        """
        return min(each.steps_left(global_step) for each in (self.saver, self.evaluations))

    def end(self, session: TrainingSession, global_step: int) -> Mapping[str, float]:
        """Evaluate the final model, record the result, and save the model.

        Return {metric: value} on the test examples. Raises TaskFailure (`input`) if the model cannot be
        saved.
        """
        self._find_restarts()
        self.evaluations.end()
        graph = self._graph
        metrics = {
            **session.evaluate(graph.data.test),
            **graph.model.levels_at(graph.context, global_step, graph.cluster.workers),
        }
        self._task.records.write("evaluated", {"global_step": global_step, "metrics": metrics})
        self.summary_lines = list(graph.model.summary_lines(metrics))
        self.saver.save_last(session, global_step)
        return metrics

    def _find_restarts(self) -> None:
        """Read the workers' notes on ps 0; a worker whose nonce has changed counts as restarted once more.

        If ps 0 does not answer, do nothing.
        """
        self._next_reading = time.monotonic() + _SECONDS_BETWEEN_READINGS
        if self._ledger is None:
            return
        try:
            notes, marks = self._ledger.notes(), self._ledger.marks()
        except NO_ANSWER:
            return  # if ps 0 is lost, the next step fails and the run recovers
        nonces = {f"worker{worker}": integer_in(note, "nonce") for worker, note in notes.items()}
        # A worker that left in order and joins again does not count as restarted.
        for name in [f"worker{worker}" for worker in marks.at(LEAVING)]:
            for known in (self._nonces, nonces):
                known.pop(name, None)
        self._count_restarts(nonces)

    def _count_restarts(self, nonces: Mapping[str, int]) -> None:
        for worker, nonce in nonces.items():
            if self._nonces.get(worker, nonce) != nonce:
                self._task.progress.restarts[split_name(worker)[1]] += 1
                say(f"{worker} was started again.")
            self._nonces[worker] = nonce

    def _parameters(self) -> dict[str, dict[str, int]]:
        """Return {task: {"variables": number, "bytes": size}} of the saved variables, without the counters.

        The tasks are all ps, or this task in a local run. A task that holds parts of tables also has "rows",
        and "table_bytes": the size of these rows and of their optimizer slots.
        """
        cluster = self._task.cluster
        holders = [f"ps{ps}" for ps in range(len(cluster.ps_devices))] or [cluster.task]
        counts = {task: {"variables": 0, "bytes": 0} for task in holders}
        parts = [piece.op.name for table in self._graph.tables.variables for piece in table.pieces]
        for variable in self._graph.saved_parameters:
            own = counts[cluster.task if cluster.is_local else holder_of(variable)]
            size = variable.shape.num_elements() * variable.dtype.size
            own["variables"] += 1
            own["bytes"] += size
            # A slot is named after its variable, as in "tables_16/part_0/Adagrad".
            if part := next((name for name in parts if f"{variable.op.name}/".startswith(f"{name}/")), ""):
                own["table_bytes"] = own.get("table_bytes", 0) + size
                if variable.op.name == part:
                    own["rows"] = own.get("rows", 0) + variable.shape[0]
        return counts
