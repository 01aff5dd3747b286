"""The towers that a client's graph computes on a worker, as the worker prints and records them."""

import tensorflow as tf

from trainer.coordination.bounded_calls import NO_ANSWER
from trainer.coordination.ledger import OwnPart
from trainer.coordination.running_task import RunningTask
from trainer.process.console import say
from trainer.task.counted_steps import CountedSteps


class Towers(CountedSteps):
    """The towers of this worker, counted as its local steps.

    A tower is this worker's part of an in-graph step: the client's graph computes the gradients of a batch on
    this worker's device, and counts them in a variable there.
    """

    def __init__(self, task: RunningTask, part: OwnPart) -> None:
        super().__init__(task, tf.Graph())
        self._part = part

    @property
    def line(self) -> str:
        """A line for `systemctl status`: "serving a run: global step 80, towers of this worker 80"."""
        return f"serving a run: global step {self.global_step}, towers of this worker {self.local_step}"

    def update(self, last_step: int) -> None:
        """Read the number of towers; record the new towers, and print a line and write a summary if due.

        `last_step` is the run's last global step. If the task's server does not answer, print a line instead.
        """
        windows = self._windows or self.begin(last_step)
        try:
            towers, global_step, loss = self._part.towers()
        except NO_ANSWER as error:
            say(f"this task's own server does not answer: {error}")
            return
        before, new = self.local_step, towers - self.local_step
        if not new:
            return
        # A restore lowers the global step, so the new towers may begin before the global step that was read
        # last. A window must not contain steps from before and after a restore.
        if global_step - new < self.global_step:
            windows.flush()
        windows.add_made_together(towers, new, loss, global_step - new, global_step)
        self.local_step, self.global_step, self.loss = towers, global_step, loss
        summary_steps, every = self._task.settings.summary_steps, self._task.settings.steps_to_validate
        due = towers - towers % summary_steps if summary_steps else 0
        if due > before and self.summaries.is_due(due):
            self.summaries.write(global_step, self.scalars())
        if towers // every > before // every:
            average = f"AvgTime: {self.average_milliseconds():.2f}ms"
            say(f"Step: {towers}, global step: {global_step}, Cost: {loss:.4f}, {average}")

    def close(self) -> None:
        """Read the number of towers for the last time, and write the remaining records.

        Do nothing if `update` was never called.
        """
        if self._windows is not None:
            self.update(0)
            self._windows.flush()

    def print_summary(self) -> None:
        """Print the totals and the number of steps, as a worker that takes its own steps does.

        Print nothing if no tower was computed.
        """
        if self.local_step:
            self.print_totals()
            say(f"Steps of this worker: {self.local_step}, global step: {self.global_step}")
