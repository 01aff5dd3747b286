"""The end barrier: who has taken the last step waits for the others, then all read one model at rest.

Every wait has an end: a worker that was lost does not sign off any more.
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
# Who has not read the model by then gives it up.
SECONDS_TO_READ = 60.0
# A worker that is slower than this one may be in the middle of a step, or have more to do to read the model.
_SLOWER = 10
_POLL_SECONDS = 0.1
# By all clients together: ps 0 has to answer them.
_POLLS_A_SECOND = 300


class EndBarrier:
    """A client's way out, through the marks on ps 0.

    The first two waits may raise tf.errors.OpError and CallTookTooLong.
    """

    def __init__(self, task: RunningTask, ledger: Ledger) -> None:
        self._task, self._ledger = task, ledger
        self._poll_seconds = max(_POLL_SECONDS, len(task.cluster.clients) / _POLLS_A_SECOND)

    def wait_for_last_steps(self, seconds_per_step: float) -> bool:
        """Sign off, and wait until all who were there have: at most 5 s, or a few steps of this task's pace.

        Whether the model is at rest then. It is not where another did not sign off in time and is alive: what
        it applies is counted later. False also where the ps were told to end: they wait for no reader.
        Raises RunEnding where the run was stopped or has failed, and StopRequested.
        """
        self._ledger.mark(SIGNED_OFF)
        seconds = max(_SIGN_OFF_SECONDS, _SLOWER * seconds_per_step)
        return self._wait(lambda marks: marks.behind(SIGNED_OFF), seconds, until_told=True)

    def wait_for_sign_offs(self) -> None:
        """Wait until all who were there have signed off from a run that was stopped or has failed."""
        self._wait(lambda marks: marks.behind(SIGNED_OFF), _SIGN_OFF_SECONDS)

    def wait_for_readers(self, seconds_to_read: float) -> None:
        """Wait until the others that have signed off need the ps no more; at most 5 s, or a few readings.

        Not longer than a reading may take: who was lost in the midst of one does not leave any more.
        """
        seconds = max(_SIGN_OFF_SECONDS, min(_SLOWER * seconds_to_read, SECONDS_TO_READ))
        # The model is saved: a ps that is lost now costs nothing.
        quietly(lambda: self._wait(lambda marks: marks.at(SIGNED_OFF), seconds))

    def _wait(self, awaited: Callable[[Marks], list[int]], seconds: float, until_told: bool = False) -> bool:
        deadline = time.monotonic() + seconds
        while True:
            others = set(awaited(self._ledger.marks())) - {self._task.cluster.index}
            # Asked after the marks: who has failed has said so before it signed off.
            if until_told and self._is_told_to_end():
                return False
            if not others:
                return True
            if time.monotonic() >= deadline:
                names = ", ".join(f"worker{worker}" for worker in sorted(others))
                say(f"Ending without waiting longer for {names}.")
                return not self._may_step(others)
            self._task.progress.tell_in_time()
            time.sleep(self._poll_seconds)

    def _may_step(self, workers: Iterable[int]) -> bool:
        """Whether one of these workers is alive and may change the model by itself."""
        cluster = self._task.cluster
        if cluster.replication == "sync":
            return False
        addresses = {listener: cluster.address_of(listener) for listener in map(cluster.listener_of, workers)}
        return len(probe_all(addresses)) < len(addresses)

    def _is_told_to_end(self) -> bool:
        self._task.raise_if_stopping()
        status = self._ledger.status(0)
        code = status.stop or status.end
        if code not in {0, RUN_OVER}:
            raise RunEnding(code, status.stop_reason)
        return code == RUN_OVER


def quietly(function: Callable[[], object]) -> None:
    """Do it as far as the ps are still there: a task that leaves waits for nobody."""
    try:
        function()
    except NO_ANSWER as error:
        say(f"While leaving: {type(error).__name__}")
