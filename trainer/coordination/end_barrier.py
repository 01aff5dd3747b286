"""The end barrier: clients wait for each other's last step, so that all read the same final model.

Every wait has a deadline, because a worker that was lost never signs off.
"""

import time
from collections.abc import Callable, Iterable

from trainer.coordination.bounded_calls import NO_ANSWER
from trainer.coordination.ledger import RUN_OVER, SIGNED_OFF, Ledger, Marks
from trainer.coordination.running_task import RunningTask
from trainer.process.console import say
from trainer.process.failure import RunEnding
from trainer.process.port_probes import probe_all

_SIGN_OFF_SECONDS = 5.0
# A client gives up reading the model after this time.
SECONDS_TO_READ = 60.0
# Another worker may take this many times longer than this one, for a step or for reading the model.
_SLOWER = 10
_POLL_SECONDS = 0.1
# The limit for all clients together, because ps 0 answers all of them.
_POLLS_A_SECOND = 300


class EndBarrier:
    """A client's waits at the end of a run, for the marks of other clients on ps 0.

    `wait_for_last_steps` and `wait_for_sign_offs` may raise tf.errors.OpError and CallTookTooLong.
    """

    def __init__(self, task: RunningTask, ledger: Ledger) -> None:
        self._task, self._ledger = task, ledger
        self._poll_seconds = max(_POLL_SECONDS, len(task.cluster.clients) / _POLLS_A_SECOND)

    def wait_for_last_steps(self, seconds_per_step: float) -> bool:
        """Sign off and wait for the others' sign-offs; return True if the model will not change any more.

        The wait lasts at most 5 s, or ten times `seconds_per_step` if that is longer. Return False if another
        worker has not signed off then and still listens, because it may apply a step; in synchronous training
        it cannot, so True. Return False, too, if the ps were told to end, because they do not wait for
        readers. Raises RunEnding if the run was stopped or has failed, and StopRequested.
        """
        self._ledger.mark(SIGNED_OFF)
        seconds = max(_SIGN_OFF_SECONDS, _SLOWER * seconds_per_step)
        return self._wait(lambda marks: marks.behind(SIGNED_OFF), seconds, until_run_over=True)

    def wait_for_sign_offs(self) -> None:
        """Wait until all workers that have reported have signed off, at most 5 s; then return in any case.

        This is for a run that was stopped or has failed. This task's own mark is not changed.
        """
        self._wait(lambda marks: marks.behind(SIGNED_OFF), _SIGN_OFF_SECONDS)

    def wait_for_readers(self, seconds_to_read: float) -> None:
        """Wait until no other client that has signed off needs the ps any more; then return in any case.

        The wait lasts at most 5 s, or ten times `seconds_to_read` (this task's own reading) if that is
        longer, but at most 60 s: a client that was lost while it read never leaves. If the ps do not answer,
        print a line and return.
        """
        seconds = max(_SIGN_OFF_SECONDS, min(_SLOWER * seconds_to_read, SECONDS_TO_READ))
        # The model is saved already, so the loss of a ps does no harm now.
        quietly(lambda: self._wait(lambda marks: marks.at(SIGNED_OFF), seconds))

    def _wait(
        self, awaited: Callable[[Marks], list[int]], seconds: float, until_run_over: bool = False
    ) -> bool:
        """Wait until `awaited` returns no other worker, at most `seconds`; return True if the model is final.

        It is final if no worker is awaited any more, or if those left cannot step (`_may_step`). With
        `until_run_over`, return False as soon as the run is over, and raise RunEnding or StopRequested as
        `wait_for_last_steps` does.
        """
        deadline = time.monotonic() + seconds
        while True:
            others = set(awaited(self._ledger.marks())) - {self._task.cluster.index}
            # Read after the marks, because a failed worker reports its failure before it signs off.
            if until_run_over and self._is_run_over():
                return False
            if not others:
                return True
            if time.monotonic() >= deadline:
                names = ", ".join(f"worker{worker}" for worker in sorted(others))
                say(f"Ending without waiting longer for {names}.")
                return not self._may_step(others)
            self._task.progress.report_if_due()
            time.sleep(self._poll_seconds)

    def _may_step(self, workers: Iterable[int]) -> bool:
        """Return True if one of `workers` still listens at its port, and could change the model by itself.

        In synchronous training no worker can: False.
        """
        cluster = self._task.cluster
        if cluster.replication == "sync":
            return False
        addresses = {listener: cluster.address_of(listener) for listener in map(cluster.listener_of, workers)}
        return len(probe_all(addresses)) < len(addresses)

    def _is_run_over(self) -> bool:
        self._task.raise_if_stopping()
        status = self._ledger.status(0)
        code = status.stop or status.end
        if code not in {0, RUN_OVER}:
            raise RunEnding(code, status.stop_reason)
        return code == RUN_OVER


def quietly(function: Callable[[], object]) -> None:
    """Call `function`; if the ps do not answer, print a line and return. Other errors are raised."""
    try:
        function()
    except NO_ANSWER as error:
        say(f"While leaving: {type(error).__name__}")
