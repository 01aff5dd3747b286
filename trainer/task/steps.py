"""A worker's training steps: how it takes, counts, prints and records them."""

import math
import time
from collections.abc import Mapping, Sequence

from trainer.contract.exit_codes import DIVERGED
from trainer.contract.step_windows import StepWindows
from trainer.coordination.awaited_workers import AwaitedWorkers
from trainer.coordination.bounded_calls import NO_ANSWER, call_within
from trainer.coordination.end_barrier import SECONDS_TO_READ
from trainer.coordination.ledger import RUN_OVER
from trainer.coordination.ledger_parts import FIRST_WORKER, GLOBAL_STEP, STOP_CODE
from trainer.coordination.running_task import RunningTask
from trainer.engine.training import StepResult, TrainingGraph, TrainingSession
from trainer.model.data import epoch_and_batch
from trainer.model.evaluation import EVALUATION_BATCH
from trainer.model.models.model import StepReport
from trainer.process.console import say
from trainer.process.failure import RunEnding, TaskFailure
from trainer.task.call_sizes import CallSizes
from trainer.task.chief import Chief
from trainer.task.counted_steps import CountedSteps
from trainer.task.divergence import Divergence, first_loss_in
from trainer.task.gradient_samples import GradientSamples
from trainer.task.summaries import test_scalars


class Steps(CountedSteps):
    """The training steps of this process, over all its sessions.

    Attributes:
        session: the session that takes the steps; None if there is none.
        last_step: the run's last global step.
        train_examples: the number of training examples.
        has_ended_early: whether the chief has ended the run before its last step.
        counters: the counters that were read last: (global step, stop code, steps of worker 0, ...).

    """

    def __init__(self, task: RunningTask, graph: TrainingGraph, chief: Chief | None) -> None:
        super().__init__(task, graph.graph)
        self._graph, self._chief, self._progress = graph, chief, task.progress
        shares = task.cluster.workers if task.settings.shard_data else None
        self._epoch = (len(graph.data.train_of(task.cluster.index)), task.settings.batch_size, shares)
        test = graph.data.test
        self._test_sample = test.read(0, min(EVALUATION_BATCH, len(test)))
        most, least = task.settings.most_steps_in_a_call, task.settings.steps_of_a_pull
        self._call_sizes = CallSizes(most, least, pull_ahead=task.settings.pull_ahead)
        self._divergence = Divergence(task.settings.divergence_steps, math.nan)
        # If a session was lost since the last step: the time at which that step was counted. Else None.
        self._still_since: float | None = None
        self._counted_at = time.monotonic()
        self.last_step, self.train_examples = 0, len(graph.data.train)
        self.has_ended_early = False
        self.session: TrainingSession | None = None
        # The fields of the record `finished` about the final model; empty if the model was not read.
        self._model_fields: Mapping[str, object] = {}
        self.counters: tuple[int, ...] = (0, 0, *[0] * task.cluster.workers)

    @property
    def finished_fields(self) -> dict[str, object]:
        """The fields of a worker's `finished` record, without the reason.

        If `read_final_model` could read, these include fingerprint, fingerprint_step and sample_outputs.
        """
        return {**super().finished_fields, **self._model_fields}

    def begin_session(self, last_step: int) -> None:
        """Read the counters from the ps, and go on with the batches after the counted steps.

        `last_step` is the run's last global step. The caller has set `session`, whose ps are ready. Raises
        RunEnding if the run has been stopped or has failed, and tf.errors.OpError.
        """
        session, self.has_ended_early = self._require_session(), False
        self.last_step = session.last_step = self._progress.last_step = last_step
        self._follow_counters(session.counters())
        if any(self.counters[FIRST_WORKER:]):
            session.start_batches(self.counters)

    def end_session(self) -> None:
        """Close the session after a ps was lost, without waiting for its calls; `session` is None afterwards.

        The counted steps are recorded first.
        """
        if self._windows is not None:
            self._windows.flush()
        if self.session is not None:
            self.session.end()
            self.session.close()
        self.session = None
        self._still_since = self._still_since or (self._counted_at if self.local_step else None)

    def run(self) -> None:
        """Take steps until the global step reaches the run's last step.

        Raises RunEnding (without the reason), StopRequested, TaskFailure (`diverged`, `peers_missing`) and
        tf.errors.OpError.
        """
        session = self._require_session()
        samples = GradientSamples(self._task, session, self.global_step)
        job, index = self._task.cluster.job, self._task.cluster.index
        self._divergence.first = first_loss_in(self._task.options.run_directory, job, index)
        windows = self.begin(self.last_step)
        # Created only now, because the time at the start barrier, or of a recovery, is no waiting within a
        # step.
        others = AwaitedWorkers(self._task)
        watchdog = self._progress.watchdog
        try:
            session.begin()
            watchdog.begin_steps()
            self._task.resources.begin()
            while self.global_step < self.last_step:
                self._task.raise_if_stopping()
                began = time.monotonic()
                results = session.steps(self._most_steps(windows), lambda: others.note_wait(session.awaited))
                others.end_wait()
                watchdog.step()
                self._call_sizes.adapt(time.monotonic() - began, len(results))
                self._count(results, windows)
                if self.local_step % self._task.settings.steps_to_validate == 0:
                    self._print(session)
                if self.summaries.is_due(self.local_step):
                    self.summaries.write(self.global_step, {**self.scalars(), **self._test_scalars(session)})
                self._progress.report_if_due()
                if windows.written:
                    samples.sample_if_due(self.global_step)
                if self._chief is not None:
                    self._chief.work_if_due(session, self.global_step)
        finally:
            watchdog.end_steps()
            self._task.resources.end()
            windows.flush()
            session.end()

    def contributions(self) -> dict[str, int]:
        """Return {worker: number of the worker's steps} of all workers, by the counters read last."""
        return {f"worker{worker}": count for worker, count in enumerate(self.counters[FIRST_WORKER:])}

    def read_counters(self) -> None:
        """Read the counters from ps 0, and store them, without taking a step."""
        self._set_counters(self._require_session().counters())

    def read_final_model(self) -> None:
        """Read the final model's fingerprint, and its outputs for some test examples, for `finished_fields`.

        If reading fails, or a step is taken meanwhile, print a line and store nothing: training does not
        depend on it.
        """
        self._model_fields, session = {}, self._require_session()

        def read() -> tuple[tuple[str, int] | None, Mapping[str, float]]:
            return session.fingerprint(), session.sample()

        try:
            fingerprint, outputs = call_within(SECONDS_TO_READ, read, self._progress.report_if_due)
        except NO_ANSWER as error:
            say(f"The final model could not be read: {type(error).__name__}")
            return
        if fingerprint is None:
            say("The model has no fingerprint: a step was taken while it was read.")
            return
        digest, step = fingerprint
        self._model_fields = {"fingerprint": digest, "fingerprint_step": step, "sample_outputs": outputs}

    def _require_session(self) -> TrainingSession:
        if self.session is None:
            raise ValueError("steps need a session")
        return self.session

    def _set_counters(self, counters: tuple[int, ...]) -> None:
        self.counters = counters
        self.global_step = self._progress.global_step = counters[GLOBAL_STEP]
        self._progress.contributions = list(counters[FIRST_WORKER:])

    def _follow_counters(self, counters: tuple[int, ...]) -> None:
        """Store the counters. Raises RunEnding if they have a stop code other than 0 and RUN_OVER.

        With RUN_OVER, the present global step becomes the run's last step, if it is lower.
        """
        self._set_counters(counters)
        if counters[STOP_CODE] == RUN_OVER:
            if self.global_step < self.last_step:
                self.has_ended_early = True
                self.last_step = self._progress.last_step = self.global_step
        elif counters[STOP_CODE]:
            raise RunEnding(counters[STOP_CODE], "")

    def _most_steps(self, windows: StepWindows) -> int:
        """Return the number of steps for the next call, at least 1.

        It is so small that nothing is due before the call's last step: no save, evaluation, line or summary.
        """
        steps_left: float = self.last_step - self.global_step
        if self._chief is not None:
            steps_left = min(steps_left, self._chief.steps_left(self.global_step))
        every = self._task.settings.steps_to_validate
        due = min(
            windows.room, every - self.local_step % every, self.summaries.steps_until_due(self.local_step)
        )
        # The other workers each take as many steps during this call, and may have begun as many before it.
        return self._call_sizes.next_size(min(due, steps_left // (2 * self._task.cluster.workers)))

    def _count(self, results: Sequence[StepResult], windows: StepWindows) -> None:
        """Count and record all steps of a call, because all are in the model, and store the last counters.

        Then raise TaskFailure (`diverged`) if a loss diverged, or RunEnding if the counters have a stop code
        other than RUN_OVER.
        """
        first = self.local_step + 1
        for step in results:
            self.local_step += 1
            before, after = step.global_step_before, step.counters[GLOBAL_STEP]
            windows.add(step.loss, before, after, step.waiting_seconds, step.read)
        windows.flush_in_time()
        self._task.lives.note_progress()
        self._counted_at = time.monotonic()
        if self._still_since is not None:
            self._progress.still_seconds += self._counted_at - self._still_since
            self._still_since = None
        self.loss = self._progress.loss = results[-1].loss
        self._set_counters(results[-1].counters)
        for number, step in enumerate(results, first):
            why = self._why_diverged(step)
            if why is not None:
                rate = self._graph.model.learning_rate(self._task.settings, self._task.cluster.workers)
                where = f"at local step {number}, global step {step.counters[GLOBAL_STEP]}"
                raise TaskFailure(
                    DIVERGED, f"loss is {step.loss:g} {where}{why}; the learning rate is {rate:g}"
                )
        self._follow_counters(results[-1].counters)

    def _why_diverged(self, step: StepResult) -> str | None:
        """Return None if the step's loss is fine, "" if it is not finite, else that it stays high, in words.

        The words are written after the loss: ", more than ten times its first (2.3) since global step 40".
        """
        if not math.isfinite(step.loss):
            return ""
        if not self._divergence.add(step.loss, step.counters[GLOBAL_STEP]):
            return None
        since = f"since global step {self._divergence.high_since}"
        return f", more than ten times its first ({self._divergence.first:g}) {since}"

    def _test_scalars(self, session: TrainingSession) -> Mapping[str, float]:
        """Return {"test/<metric>": value} on some test examples; {} on other workers than the chief."""
        return {} if self._chief is None else test_scalars(session.evaluate(self._test_sample))

    def _print(self, session: TrainingSession) -> None:
        epoch, batch, batches = epoch_and_batch(self.local_step * self._batches, *self._epoch)
        report = StepReport(
            local_step=self.local_step,
            global_step=self.global_step,
            epoch=epoch,
            batch=batch,
            batches_per_epoch=batches,
            loss=self.loss,
            average_milliseconds=self.average_milliseconds(),
            watched=session.watched(),
        )
        say(self._graph.model.step_line(report))
