"""A worker that takes steps: it waits for the other tasks, trains until the run is over, and ends.

The chief tells every ps that the run is over. Each client tells the other tasks that serve the client.
"""

import math
import time
import traceback
from contextlib import suppress
from functools import partial

from trainer.contract.exit_codes import CLUSTER_BROKE, FAILURE_CLASSES, FINISHED, STOPPED
from trainer.contract.records import MET, STOPPED_BY_HAND, STOPPED_BY_HOST
from trainer.contract.stop_condition import condition_in
from trainer.coordination.bounded_calls import NO_ANSWER, call_within, is_lost_connection
from trainer.coordination.end_barrier import EndBarrier, quietly
from trainer.coordination.ledger import LEAVING, RUN_OVER, SIGNED_OFF, Ledger, OwnPart
from trainer.coordination.running_task import RunningTask
from trainer.coordination.session_watch import SessionWatch
from trainer.coordination.start_barrier import Barrier, Gathering
from trainer.coordination.task_notes import serving_note, worker_note
from trainer.engine.replication import build_graph
from trainer.engine.training import TrainingGraph, TrainingSession
from trainer.host.error_lines import error_in_short
from trainer.model.models import find_model
from trainer.process.console import say
from trainer.process.failure import RunEnding, StopRequested, TaskFailure, failure_of
from trainer.process.stop_request import host_goes_down
from trainer.process.systemd import notify
from trainer.task.chief import Chief
from trainer.task.kept_checkpoint_copies import keep_copies
from trainer.task.steps import Steps
from trainer.task.summaries import test_scalars
from trainer.task.tables.local_files import serve_table_files

# The task gives up after more than this many losses of a ps without a step in between.
_LOSSES_WITHOUT_A_STEP = 5
# A worker that fails before it reached the ps still reports its failure, if the ps answer within this time.
_SECONDS_TO_REACH_PS = 10.0


def run_worker(task: RunningTask) -> int:
    """Run a worker that takes steps, from its start to its end, and return its exit code.

    Raises TaskFailure if it cannot listen on its port; later failures become the exit code.
    """
    task.progress.report()
    task.join_cluster()
    if task.cluster.is_local:
        OwnPart(task.target, task.cluster).create(serving_note(task))
    keep_copies(task)
    notify("READY=1", f"STATUS={task.progress.status}")
    worker = _Worker(task)
    try:
        worker.train()
        return worker.finish(*worker.end_reason)
    except StopRequested:
        return worker.stop()
    except RunEnding as ending:
        return worker.end_with_run(ending)
    except TaskFailure as failure:
        return worker.fail(failure)
    except Exception as error:  # any other exception is an error of the program
        traceback.print_exc()
        return worker.fail(failure_of(error))


class _Worker:
    """A worker that takes steps and has joined the cluster.

    `steps` is None until the examples are loaded; `chief` is None until then, and always on other workers
    than the chief.
    """

    def __init__(self, task: RunningTask) -> None:
        self._task, self._barrier = task, Barrier(task)
        self._watch: SessionWatch | None = None
        self.steps: Steps | None = None
        self.chief: Chief | None = None

    def train(self) -> None:
        """Load the examples, and take steps until the run is over; after each loss of a ps, connect again.

        Raises TaskFailure (`cluster_broke`) after six losses without a step in between, RunEnding if another
        task ended the run, and StopRequested.
        """
        graph = call_within(math.inf, self._load, self._task.progress.report_if_due)
        self.chief = Chief(self._task, graph) if self._task.cluster.is_chief else None
        self.steps = steps = Steps(self._task, graph, self.chief)
        last_step = self._task.settings.last_step(self._task.cluster.workers, len(graph.data.train))
        note = worker_note(self._task, last_step)
        prepare = self.chief.prepare if self.chief else None
        losses, steps_at_loss = 0, -1
        while True:
            since = time.monotonic()
            gathering = self._barrier.wait(note, prepare, recovering=steps_at_loss >= 0)
            waited_seconds = time.monotonic() - since
            take_part = partial(self._take_part, gathering, graph, steps, waited_seconds)
            self._watch = gathering.watch
            try:
                call_within(math.inf, take_part, self._watch_session)
                return
            except NO_ANSWER as error:
                if not is_lost_connection(error):
                    raise
                losses = losses + 1 if steps.local_step == steps_at_loss else 1
                reason = error_in_short(error)
                if losses > _LOSSES_WITHOUT_A_STEP:
                    again = f"{losses} losses of tasks without a step in between, the last"
                    raise TaskFailure(CLUSTER_BROKE, f"{again}: {reason}") from error
                say(f"A task that holds a part of the run was lost, connecting again: {reason}")
                self._task.records.write("recovering", {"reason": reason})
                steps.end_session()
                self._barrier.drop_ledger()
            steps_at_loss = steps.local_step

    @property
    def end_reason(self) -> tuple[str, str]:
        """Why the run is over: (the `reason` for a `finished` record, the words for people).

        The reason is "last step", or MET if an evaluation has met the user's condition before.
        """
        if self.steps is not None and self.steps.has_ended_early:
            return MET, f"an evaluation met {condition_in(self._task.settings.as_dict())}"
        return "last step", "the last step is taken"

    def _load(self) -> TrainingGraph:
        model = find_model(self._task.settings.model)
        data = model.load(self._task.settings, self._task.cluster.workers)
        graph = build_graph(self._task, model, data)
        if graph.tables.variables:
            serve_table_files(self._task)
        return graph

    def _take_part(
        self, gathering: Gathering, graph: TrainingGraph, steps: Steps, waited_seconds: float
    ) -> None:
        """Train with one session until the run is over; runs in a thread, because calls may hang.

        `waited_seconds` is how long this task waited for the others. Raises tf.errors.OpError if a ps is
        lost.
        """
        graph.use_notes(gathering.serving_notes)
        prepared = self.chief.meet(gathering) if self.chief else None
        steps.session = prepared or graph.session(self._task.target)
        self._barrier.line_up(gathering.ledger)
        steps.begin_session(gathering.last_step)
        self._report_peers(gathering, steps.global_step, waited_seconds)
        steps.run()
        self._end(gathering.ledger, steps)

    def _watch_session(self) -> None:
        """Look whether the tasks that the other thread's session needs answer; this is called regularly.

        While the chief saves, or a task does not answer, the watchdog excuses that there are no steps. A save
        while all answer extends the time that a requested stop may take.
        """
        self._task.resources.sample()
        if self._watch is None:
            return
        saves = self.chief is not None and self.chief.saver.is_saving
        if saves or not self._watch.all_answer:
            self._task.progress.watchdog.excuse()
        self._watch.update()
        if saves and self._watch.all_answer:
            self._task.stop.extend_timeout()

    def _report_peers(self, gathering: Gathering, global_step: int, waited_seconds: float) -> None:
        names = ("ps_nonces", "ps_own_nonces", "worker_nonces")
        nonces = {name: getattr(gathering, name) for name in names}
        server = gathering.serving_notes.get(f"server{self._task.cluster.index}")
        server_nonce = {} if server is None else {"server_nonce": server["nonce"]}
        when = {"waited_seconds": round(waited_seconds, 6), "global_step": global_step}
        self._task.records.write("peers_ready", {**nonces, **when, **server_nonce})
        steps = f"from global step {global_step} to {gathering.last_step}"
        say(f"All tasks are there after {waited_seconds:.1f} s: training {steps}.")
        self._task.progress.report_training()

    def _end(self, ledger: Ledger, steps: Steps) -> None:
        """Wait for the others' last steps, then read the final model.

        The chief then evaluates and saves the model, and waits for the others' reading. Any other worker only
        marks in the ledger that it leaves.
        """
        if self.chief is not None:
            self._task.progress.enter_phase("ending")
        end = EndBarrier(self._task, ledger)
        began = time.monotonic()
        if end.wait_for_last_steps(steps.seconds / max(steps.local_step, 1)):
            began = time.monotonic()
            steps.read_final_model()
        else:
            say("The final model is not read: not all have taken their last step, or the run is over.")
        if self.chief is None or steps.session is None:
            quietly(lambda: ledger.mark(LEAVING))  # this client no longer needs the ps
            return
        seconds_to_read = time.monotonic() - began
        steps.read_counters()
        metrics = self.chief.end(steps.session, steps.global_step)
        steps.summaries.write(steps.global_step, test_scalars(metrics))
        end.wait_for_readers(seconds_to_read)

    def finish(self, reason: str, in_words: str) -> int:
        """Record and print that the run is over, and end the tasks that serve; return FINISHED.

        `reason` is for the record, `in_words` for people.
        """
        self._record_finished(reason)
        self._end_serving(RUN_OVER)
        self._print_summary(in_words)
        self._task.progress.enter_phase("finished", in_words if reason == MET else "")
        return FINISHED

    def stop(self) -> int:
        """End because of SIGTERM; return STOPPED. If the chief cannot save, return the failure's exit code.

        The chief stops the run, and saves its last step. If the host goes down, the chief saves, too, but the
        run goes on without this task, which joins the run again after the boot.
        """
        if host_goes_down():
            with suppress(TaskFailure):  # the checkpoint before this one is kept
                self._save_present_step()
            self._record_finished(STOPPED_BY_HOST)
            self._print_summary(STOPPED_BY_HOST)
            return STOPPED
        ledger = self._barrier.ledger
        if ledger is not None and self._task.cluster.is_chief:
            quietly(lambda: ledger.request_stop(STOPPED, "the chief was told to stop"))
        try:
            self._end_stopped()
        except TaskFailure as unsaved:
            return self.fail(unsaved)
        return STOPPED

    def end_with_run(self, ending: RunEnding) -> int:
        """End because another task has ended the run; return the exit code.

        It is FINISHED if the run was stopped or is over, else the exit code of the other task's failure.
        """
        ledger = self._barrier.ledger
        if ending.code == STOPPED:
            self._end_stopped()
            return FINISHED
        if ending.code == RUN_OVER:
            return self.finish("run over", "the run is over")
        reason = ending.reason
        with suppress(*NO_ANSWER):
            reason = reason or (ledger.status(0).stop_reason if ledger else "")
        self._record_failure(ending.code, reason)
        self._sign_off()
        self._end_serving(ending.code, reason)
        return ending.code

    def fail(self, failure: TaskFailure) -> int:
        """Record and print that this task failed; return the failure's exit code.

        This also ends the run, unless the failure is `cluster_broke`, after which systemd starts the task
        again, or the run can go on without this task (`_is_dispensable`).
        """
        self._record_failure(failure.code, failure.reason)
        if failure.code == CLUSTER_BROKE:
            return failure.code
        ledger = self._barrier.ledger or self._barrier.reach_ledger(_SECONDS_TO_REACH_PS)
        reason = f"{self._task.cluster.task}: {failure.reason}"
        if ledger is not None and not self._is_dispensable(ledger):
            quietly(lambda: ledger.request_stop(failure.code, reason))
        self._sign_off()
        self._end_serving(failure.code, reason)
        return failure.code

    def _is_dispensable(self, ledger: Ledger) -> bool:
        """Return whether the run goes on without this process, which has failed.

        True if the run is asynchronous and has begun, and this process is not the chief and took no step.
        False if ps 0 does not answer.
        """
        cluster, steps = self._task.cluster, self.steps
        if cluster.is_chief or cluster.replication != "async" or (steps is not None and steps.local_step):
            return False
        with suppress(*NO_ANSWER):
            return ledger.status(0).ready
        return False

    def _end_stopped(self) -> None:
        self._sign_off()
        self._save_present_step()
        self._record_finished(STOPPED_BY_HAND)
        self._end_serving(STOPPED)
        self._print_summary(STOPPED_BY_HAND)
        self._task.progress.enter_phase("stopped")

    def _save_present_step(self) -> None:
        """Save the model if this is the chief and has a session; if the ps do not answer, do nothing.

        Raises TaskFailure (`input`) if the model cannot be saved.
        """
        steps, chief = self.steps, self.chief
        if chief is not None and steps is not None and steps.session is not None:
            save = partial(self._save_stopped, chief, steps, steps.session)
            quietly(lambda: call_within(math.inf, save, self._watch_session))

    @staticmethod
    def _save_stopped(chief: Chief, steps: Steps, session: TrainingSession) -> None:
        steps.read_counters()
        chief.saver.save_last(session, steps.global_step)

    def _sign_off(self) -> None:
        ledger = self._barrier.ledger
        if ledger is not None:
            # No task waits for a worker (other than the chief) that leaves early: it does not read the final
            # model.
            quietly(lambda: ledger.mark(LEAVING if self.chief is None else SIGNED_OFF))
            if self.chief is not None:
                quietly(EndBarrier(self._task, ledger).wait_for_sign_offs)

    def _end_serving(self, code: int, reason: str = "") -> None:
        ledger = self._barrier.ledger
        if ledger is not None and self._task.cluster.is_chief:
            quietly(lambda: ledger.end(code))
        # Only after the ps have ended, because this client's sessions go through its own server.
        self._barrier.end_serving_tasks(code, reason)

    def _record_finished(self, reason: str) -> None:
        steps = self.steps
        nothing = {"local_step": 0, "global_step": 0, "seconds": 0.0, "examples": 0, "loss": None}
        fields: dict[str, object] = {"reason": reason, **(steps.finished_fields if steps else nothing)}
        if self._task.cluster.is_chief:
            fields["contributions"] = steps.contributions() if steps else {}
            fields["last_step"] = steps.last_step if steps else 0
            # With epochs, the last step depends on it.
            fields |= {"train_examples": steps.train_examples} if steps else {}
        self._task.records.write("finished", fields)

    def _record_failure(self, code: int, reason: str) -> None:
        name = FAILURE_CLASSES.get(code, FAILURE_CLASSES[CLUSTER_BROKE])
        self._task.records.write("failed", {"class": name, "reason": reason})
        say(f"Training failed ({name}): {reason}")
        self._task.progress.enter_phase("failed", reason)

    def _print_summary(self, why: str) -> None:
        steps = self.steps
        if steps is None or not steps.local_step:
            say(f"Training finished: {why}")
            return
        for line in self.chief.summary_lines if self.chief else []:
            say(line)
        steps.print_totals()
        own = f"Steps of this worker: {steps.local_step}, global step: {steps.global_step}"
        say(f"Training finished: {why}. {own}")
