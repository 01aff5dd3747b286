"""The chief's duties: worker 0 sets the variables, saves checkpoints, evaluates, and ends the run."""

import math
import time
from collections.abc import Mapping

import tensorflow as tf

from trainer.contract.exit_codes import INPUT
from trainer.contract.records import draw_nonce
from trainer.contract.task_names import split_name
from trainer.coordination.bounded_calls import NO_ANSWER, is_lost_connection
from trainer.coordination.ledger import Ledger
from trainer.coordination.running_task import RunningTask
from trainer.coordination.start_barrier import Gathering, Statuses
from trainer.coordination.task_notes import integer_in
from trainer.engine.training import TrainingGraph, TrainingSession
from trainer.host.error_lines import error_in_short
from trainer.model.checkpoints import CheckpointFolder, SaveOperation
from trainer.model.fingerprint import fingerprint_of
from trainer.process.console import say
from trainer.process.failure import TaskFailure

_SECONDS_BETWEEN_READINGS = 2.0


class Chief:
    """The duties of worker 0.

    `is_saving` is true while a save goes on; another thread reads it. `summary_lines` are printed at the end
    and show the evaluation.
    """

    def __init__(self, task: RunningTask, graph: TrainingGraph) -> None:
        """Take the chief's graph. Raises TaskFailure."""
        self._task, self._graph = task, graph
        # The last nonce of each worker. If it changes, the worker was started again.
        self._nonces: dict[str, int] = {}
        self._next_reading = 0.0
        self._ledger: Ledger | None = None
        self._session: TrainingSession | None = None
        self.is_saving = False
        self.summary_lines: list[str] = []
        self._folder = _checkpoint_folder(task)
        self._save_operation = None
        if self._folder is not None:
            # This process's own device, because the folder is on its host; None if another process serves it.
            device = None if task.cluster.existing_servers else f"{task.cluster.device}/device:CPU:0"
            directory, variables = self._folder.directory, graph.variables
            with graph.graph.as_default():
                self._save_operation = SaveOperation(directory, variables, graph.counters, device)
        self._saved_step = -1
        self._restart_intervals(0)

    def prepare(self, ledger: Ledger, statuses: Statuses, served: Statuses) -> None:
        """Restore the newest good checkpoint, or initialise the variables; then let all tasks start.

        `statuses` are the statuses of the ps, `served` those of the other tasks that serve the chief.
        """
        ledger.clear_ready()
        self._graph.use_notes({task: status.note for task, status in served.items()})
        if self._session is not None:
            self._session.close()
        self._session = session = self._graph.session(self._task.target)
        session.initialise()
        checkpoint = self._folder.newest_good(say) if self._folder else None
        fields: dict[str, object] = {"ps_parameters": self._parameters()}
        if checkpoint is None:
            say("The variables have their first values: there is no checkpoint of this run.")
            self._task.records.write("initialised", {"global_step": 0, **fields})
        else:
            session.restore(checkpoint)
            say(f"Restored {checkpoint.path}: going on from global step {checkpoint.global_step}.")
            read = {"global_step": checkpoint.global_step, "checkpoint": str(checkpoint.path)}
            holds = {"fingerprint": fingerprint_of(checkpoint.values)}
            self._task.records.write("restored", {**read, **holds, **fields})
        self._saved_step = checkpoint.global_step if checkpoint else -1
        self._restart_intervals(max(self._saved_step, 0))
        # With a checkpoint from the start, a ps that is lost early costs no more than the steps since then.
        self.save(session, max(self._saved_step, 0))
        ledger.set_ready([status.nonce or draw_nonce() for status in statuses.values()])

    def meet(self, gathering: Gathering) -> TrainingSession | None:
        """Take over the gathered tasks; return the session that set the variables, to take steps with it."""
        self._ledger = gathering.ledger
        self._count_restarts(gathering.worker_nonces)
        session, self._session = self._session, None
        return session

    def work_if_due(self, session: TrainingSession, global_step: int) -> None:
        """Save a checkpoint, and find workers that were started again, if either is due."""
        every = self._task.settings.checkpoint_interval_steps
        steps_are_due = every > 0 and global_step >= self._steps_from + every
        if steps_are_due or time.monotonic() >= self._next_save:
            self.save(session, global_step)
        # A worker that starts again only leaves its note on ps 0: the chief has to read the notes.
        if time.monotonic() >= self._next_reading:
            self._find_restarts()

    def steps_until_save(self, global_step: int) -> float:
        """Return the global steps until `checkpoint_interval_steps` is over; infinity if it is 0."""
        every = self._task.settings.checkpoint_interval_steps
        return self._steps_from + every - global_step if every else math.inf

    def end(self, session: TrainingSession, global_step: int) -> Mapping[str, float]:
        """Evaluate and save the final model; return its metrics on the test examples."""
        self._find_restarts()
        metrics = session.evaluate(self._graph.data.test)
        self._task.records.write("evaluated", {"global_step": global_step, "metrics": metrics})
        self.summary_lines = list(self._graph.model.summary_lines(metrics))
        self.save_last(session, global_step)
        return metrics

    def save_last(self, session: TrainingSession, global_step: int) -> None:
        """Save the final model. Raises TaskFailure (`input`) if it cannot be saved."""
        if why := self.save(session, global_step):
            raise TaskFailure(
                INPUT, f"the last checkpoint, of global step {global_step}, is not saved: {why}"
            )

    def save(self, session: TrainingSession, global_step: int) -> str:
        """Save a checkpoint, unless this global step is saved already.

        Print and return the reason if that fails, else "". Raises tf.errors.OpError if a ps is lost.
        """
        reason = ""
        if self._folder is None or self._save_operation is None or global_step == self._saved_step:
            return reason
        began = time.monotonic()
        self.is_saving = True
        try:
            with session.updates_paused():
                path, fingerprint = self._save_operation.run(session.session)
            self._folder.remove_old()
        except (tf.errors.OpError, OSError) as error:
            if is_lost_connection(error):
                raise
            reason = error_in_short(error)
            say(f"The checkpoint at global step {global_step} could not be saved: {reason}")
            self._task.records.write("checkpoint_failed", {"global_step": global_step, "reason": reason})
        else:
            self._saved_step = int(path.name.rpartition("-")[2])
            seconds = round(time.monotonic() - began, 6)
            fields = {"path": str(path), "seconds": seconds, "fingerprint": fingerprint}
            self._task.records.write("checkpointed", {"global_step": self._saved_step, **fields})
        finally:
            self.is_saving = False
        self._restart_intervals(global_step)
        return reason

    def _restart_intervals(self, global_step: int) -> None:
        """Begin both checkpoint intervals now: at the start, and after each attempt to save."""
        self._steps_from = global_step
        self._next_save = time.monotonic() + self._task.settings.checkpoint_interval_seconds

    def _find_restarts(self) -> None:
        """Read the notes on ps 0, where each process of a worker leaves its own nonce."""
        self._next_reading = time.monotonic() + _SECONDS_BETWEEN_READINGS
        if self._ledger is None:
            return
        try:
            notes = self._ledger.notes()
        except NO_ANSWER:
            return  # if ps 0 is lost, the next step fails and the run recovers
        self._count_restarts({f"worker{worker}": integer_in(note, "nonce") for worker, note in notes.items()})

    def _count_restarts(self, nonces: Mapping[str, int]) -> None:
        for worker, nonce in nonces.items():
            if self._nonces.get(worker, nonce) != nonce:
                self._task.progress.restarts[split_name(worker)[1]] += 1
                say(f"{worker} was started again.")
            self._nonces[worker] = nonce

    def _parameters(self) -> dict[str, dict[str, int]]:
        """Return task ("ps0") -> the number and bytes of the saved variables there, except the counters."""
        cluster = self._task.cluster
        holders = [f"ps{ps}" for ps in range(len(cluster.ps_devices))] or [cluster.task]
        held = {task: {"variables": 0, "bytes": 0} for task in holders}
        for variable in self._graph.saved_parameters:
            place = tf.DeviceSpec.from_string(variable.device)
            of_task = held[cluster.task if cluster.is_local else f"{place.job}{place.task}"]
            of_task["variables"] += 1
            of_task["bytes"] += variable.shape.num_elements() * variable.dtype.size
        return held


def _checkpoint_folder(task: RunningTask) -> CheckpointFolder | None:
    if task.options.run_directory is None:
        return None
    # TensorFlow resolves a relative path in its own process's directory; messages show this path, too.
    absolute = task.options.run_directory.absolute() / "checkpoints"
    try:
        return CheckpointFolder(absolute, task.settings.checkpoints_to_keep)
    except OSError as error:
        raise TaskFailure(INPUT, f"{absolute} cannot be used for checkpoints: {error.strerror}") from error
