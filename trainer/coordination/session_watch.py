"""Looks, while a session is at work, whether the tasks that it needs answer and are the same as before.

TensorFlow waits for ever for a task that hangs or has gone without a word, and now and then for one that was
killed. Other sessions, to the ledger, find out.
"""

import time
from collections.abc import Callable, Mapping

import tensorflow as tf

from trainer.coordination.bounded_calls import CallTookTooLong
from trainer.coordination.ledger import Ledger, ServedPart
from trainer.coordination.ledger_parts import PartStatus
from trainer.coordination.running_task import RunningTask
from trainer.coordination.task_notes import integer_in
from trainer.process.console import say

_SECONDS_BETWEEN_LOOKS = 2.0
_SILENCE = (
    tf.errors.UnavailableError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    CallTookTooLong,
)


class LostTask(CallTookTooLong):
    """A task does not answer any more, or is another process: what it held is gone. `task` is its name."""

    def __init__(self, task: str, what: str) -> None:
        super().__init__(f"{task} {what}")
        self.task = task


class SessionWatch:
    """What to do while a thread is at work with a session: `look`, as `call_within` does meanwhile."""

    def __init__(
        self,
        task: RunningTask,
        ledger: Ledger,
        served: Mapping[str, ServedPart],
        statuses: Mapping[str, PartStatus],
    ) -> None:
        """Take whom to look at: each has a status, which says what process it was, and a part or is a ps."""
        self._task, self._ledger = task, ledger
        self._reads: dict[str, Callable[[], PartStatus]] = {}
        if not task.cluster.is_local:
            ps = range(len(task.cluster.ledger_devices))
            self._reads |= {f"ps{index}": lambda index=index: self._look_at_ps(index) for index in ps}  # type: ignore[misc]
        self._reads |= {name: part.status for name, part in served.items()}
        self._nonces = {name: integer_in(statuses[name].note, "nonce") for name in self._reads}
        self._silent_since: dict[str, float] = {}
        self._next = 0.0

    @property
    def all_answer(self) -> bool:
        """Whether everybody answered the last time."""
        return not self._silent_since

    def look(self) -> None:
        """Keep the watchdog quiet; every 2 s see who is there, where the chief also shows that it is.

        Raises LostTask where one is another process than it was, or has not answered for as long as this task
        waits for others, and tf.errors.OpError where it answers that it knows nothing of the run.
        """
        self._task.progress.tell_in_time()
        if time.monotonic() < self._next:
            return
        for name, read in self._reads.items():
            try:
                nonce = integer_in(read().note, "nonce")
            except _SILENCE:
                self._note_silence(name)
                continue
            if nonce != self._nonces[name]:
                raise LostTask(name, "was started again")
            if self._silent_since.pop(name, None) is not None:
                say(f"{name} answers again.")
        self._next = time.monotonic() + _SECONDS_BETWEEN_LOOKS

    def _look_at_ps(self, index: int) -> PartStatus:
        if self._task.cluster.is_chief:
            self._ledger.beat(index)
        return self._ledger.status(index)

    def _note_silence(self, name: str) -> None:
        """Count it from the first answer that did not come: this process may have been stopped itself."""
        if name not in self._silent_since:
            self._silent_since[name] = time.monotonic()
            say(f"{name} does not answer.")
        silent = time.monotonic() - self._silent_since[name]
        if silent >= self._task.patience_seconds:
            raise LostTask(name, f"has not answered for {silent:.0f} s")
        self._task.progress.tell_in_time()
