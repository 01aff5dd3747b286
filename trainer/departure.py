"""How a client leaves: signed off, recorded, and with those told that end with it.

The chief tells every ps; each client tells the other tasks that serve it.
"""

from __future__ import annotations

import tensorflow as tf

from trainer.barrier import Barrier
from trainer.calls import CallTookTooLong
from trainer.chief import Chief
from trainer.console import say
from trainer.end_barrier import EndBarrier, quietly
from trainer.exit_codes import CLUSTER_BROKE, FAILURE_CLASSES, FINISHED, STOPPED
from trainer.failure import RunEnding, TaskFailure
from trainer.ledger import GLOBAL_STEP, RUN_OVER, SIGNED_OFF, Ledger
from trainer.reporting import Progress
from trainer.steps import Steps
from trainer.task import Task

# A worker that fails before it met the others still tells them, if the ps come up within this time.
_SECONDS_TO_REACH_PS = 10.0


class Departure:
    """The ways out. `steps` and `chief` are set once the worker is built."""

    def __init__(self, task: Task, barrier: Barrier, progress: Progress) -> None:
        """Take what is needed to tell the others."""
        self._task, self._barrier, self._progress = task, barrier, progress
        self.steps: Steps | None = None
        self.chief: Chief | None = None

    def finish(self) -> int:
        """Leave after the run's last step."""
        self._record_finished("last step")
        self._end_serving(self._barrier.ledger, RUN_OVER)
        self._print_summary("the last step is taken")
        self._progress.change("finished")
        return FINISHED

    def stop(self) -> int:
        """Leave because of SIGTERM; when the chief leaves, the run stops, saved at its very last step."""
        ledger = self._barrier.ledger
        if ledger is not None and self._task.cluster.is_chief:
            quietly(lambda: ledger.request_stop(STOPPED, "the chief was told to stop"))
        self._leave_stopped(ledger)
        return STOPPED

    def follow(self, ending: RunEnding) -> int:
        """Leave because another task has ended the run."""
        ledger = self._barrier.ledger
        reason = ending.reason or _stop_reason(ledger)
        if ending.code == STOPPED:
            self._leave_stopped(ledger)
            return FINISHED
        if ending.code == RUN_OVER:
            self._record_finished("run over")
            self._end_serving(ledger, RUN_OVER)
            self._print_summary("the run is over")
            self._progress.change("finished")
            return FINISHED
        self._record_failure(ending.code, reason)
        self._sign_off(ledger)
        self._end_serving(ledger, ending.code, reason)
        return ending.code

    def fail(self, failure: TaskFailure) -> int:
        """Leave because this task failed, and take the run along unless a new start can mend it."""
        self._record_failure(failure.code, failure.reason)
        if failure.code == CLUSTER_BROKE:
            return failure.code
        ledger = self._barrier.ledger or self._barrier.reach_ledger(_SECONDS_TO_REACH_PS)
        reason = f"{self._task.cluster.task}: {failure.reason}"
        if ledger is not None:
            quietly(lambda: ledger.request_stop(failure.code, reason))
        self._sign_off(ledger)
        self._end_serving(ledger, failure.code, reason)
        return failure.code

    def _leave_stopped(self, ledger: Ledger | None) -> None:
        self._sign_off(ledger)
        steps, chief = self.steps, self.chief
        if chief is not None and steps is not None and steps.session is not None:
            quietly(steps.look)
            session = steps.session
            quietly(lambda: chief.save(session, steps.counters[GLOBAL_STEP]))
        self._record_finished("stopped")
        self._end_serving(ledger, STOPPED)
        self._print_summary("stopped")
        self._progress.change("stopped")

    def _sign_off(self, ledger: Ledger | None) -> None:
        if ledger is None:
            return
        quietly(lambda: ledger.mark(SIGNED_OFF))
        if self.chief is not None:
            quietly(EndBarrier(self._task, ledger, self._progress).wait_for_sign_offs)

    def _end_serving(self, ledger: Ledger | None, code: int, reason: str = "") -> None:
        if ledger is not None and self._task.cluster.is_chief:
            quietly(lambda: ledger.end(code))
        # After the ps: this client's own server is what its sessions go through.
        self._barrier.end_served(code, reason)

    def _record_finished(self, reason: str) -> None:
        steps = self.steps
        fields: dict[str, object] = {
            "reason": reason,
            "local_step": steps.local_step if steps else 0,
            "global_step": steps.counters[GLOBAL_STEP] if steps else 0,
            "seconds": round(steps.seconds, 6) if steps else 0.0,
            "examples": steps.examples if steps else 0,
            "loss": steps.loss if steps else None,
        }
        if steps and steps.fingerprint:
            fields["fingerprint"], fields["fingerprint_step"] = steps.fingerprint
        if self._task.cluster.is_chief:
            fields["contributions"] = steps.contributions() if steps else {}
            fields["last_step"] = steps.last_step if steps else 0
        self._task.records.write("finished", fields)

    def _record_failure(self, code: int, reason: str) -> None:
        name = FAILURE_CLASSES.get(code, FAILURE_CLASSES[CLUSTER_BROKE])
        self._task.records.write("failed", {"class": name, "reason": reason})
        say(f"Training failed ({name}): {reason}")
        self._progress.change("failed", reason)

    def _print_summary(self, why: str) -> None:
        steps = self.steps
        if steps is None or not steps.local_step:
            say(f"Training finished: {why}")
            return
        for line in self.chief.summary_lines if self.chief else []:
            say(line)
        say(f"Total Time: {steps.seconds:.2f}s")
        say(f"Final Cost: {steps.loss:.4f}")
        global_step = steps.counters[GLOBAL_STEP]
        say(f"Training finished: {why}. Steps of this worker: {steps.local_step}, global step: {global_step}")


def _stop_reason(ledger: Ledger | None) -> str:
    try:
        return ledger.status(0).stop_reason if ledger else ""
    except (tf.errors.OpError, CallTookTooLong):
        return ""
