"""The watch over the tasks that a working session needs: whether they answer, as the same processes.

TensorFlow waits for ever for a task that hangs or whose host vanished, and sometimes for a task that was
killed. So the watch uses other sessions, to the ledger.
"""

import time
from collections.abc import Callable, Mapping

import tensorflow as tf

from trainer.coordination.bounded_calls import CallTookTooLong
from trainer.coordination.ledger import Ledger, ServingPart
from trainer.coordination.ledger_parts import PartStatus
from trainer.coordination.running_task import RunningTask
from trainer.coordination.task_notes import integer_in
from trainer.process.console import say

_SECONDS_BETWEEN_READINGS = 2.0
_SILENCE = (
    tf.errors.UnavailableError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    CallTookTooLong,
)


class LostTask(CallTookTooLong):
    """The task `task` does not answer any more, or was started again and has lost its state."""

    def __init__(self, task: str, what: str) -> None:
        super().__init__(f"{task} {what}")
        self.task = task


class SessionWatch:
    """Watches tasks while another thread works with a session; `call_within` calls `update` meanwhile."""

    def __init__(
        self,
        task: RunningTask,
        ledger: Ledger,
        serving_parts: Mapping[str, ServingPart],
        statuses: Mapping[str, PartStatus],
    ) -> None:
        """Watch all ps (none in a local run) and the tasks in `serving_parts`.

        `statuses` is {task: status} of these tasks, with the nonces of their processes.
        """
        self._task, self._ledger = task, ledger
        self._reads: dict[str, Callable[[], PartStatus]] = {}
        if not task.cluster.is_local:
            ps = range(len(task.cluster.ledger_devices))
            self._reads |= {f"ps{index}": lambda index=index: self._read_ps(index) for index in ps}  # type: ignore[misc]
        self._reads |= {name: part.status for name, part in serving_parts.items()}
        self._nonces = {name: integer_in(statuses[name].note, "nonce") for name in self._reads}
        self._silent_since: dict[str, float] = {}
        self._next = 0.0

    @property
    def all_answer(self) -> bool:
        """True if each task answered the last time it was asked, and before the first time."""
        return not self._silent_since

    def update(self) -> None:
        """Notify the watchdog and, every 2 s, ask the watched tasks (the ps, and the tasks that serve).

        A chief also writes its beat. Raises LostTask if a task was started again, or has not answered for
        `patience_seconds` since its first missing answer. Raises tf.errors.OpError if a task answers that its
        part of the ledger does not exist.
        """
        self._task.progress.report_if_due()
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
        self._next = time.monotonic() + _SECONDS_BETWEEN_READINGS

    def _read_ps(self, index: int) -> PartStatus:
        if self._task.cluster.is_chief:
            self._ledger.beat(index)
        return self._ledger.status(index)

    def _note_silence(self, name: str) -> None:
        """Note that a task did not answer; raise LostTask if that has lasted for `patience_seconds`.

        The time counts from the first missing answer, and not from the last answer, because this process
        itself may have been stopped in between.
        """
        if name not in self._silent_since:
            self._silent_since[name] = time.monotonic()
            say(f"{name} does not answer.")
        silent = time.monotonic() - self._silent_since[name]
        if silent >= self._task.patience_seconds:
            raise LostTask(name, f"has not answered for {silent:.0f} s")
        self._task.progress.report_if_due()
