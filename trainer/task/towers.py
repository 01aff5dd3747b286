"""What a worker tells of the towers that a client's graph computes on it: lines, `step` records, its end."""

import tensorflow as tf

from trainer.coordination.bounded_calls import NO_ANSWER
from trainer.coordination.ledger import OwnPart
from trainer.coordination.running_task import RunningTask
from trainer.process.console import say
from trainer.task.told_steps import ToldSteps


class Towers(ToldSteps):
    """The towers computed in this process, read from the variables on its own device."""

    def __init__(self, task: RunningTask, part: OwnPart) -> None:
        super().__init__(task, tf.Graph())
        self._part = part

    @property
    def line(self) -> str:
        """One line for `systemctl status`."""
        return f"serving a run: global step {self.global_step}, towers of this worker {self.local_step}"

    def look(self, last_step: int) -> None:
        """Read how many there are now; `last_step` is the run's."""
        windows = self._windows or self.begin(last_step)
        try:
            towers, global_step, loss = self._part.towers()
        except NO_ANSWER as error:
            say(f"this task's own server does not answer: {error}")
            return
        before, new = self.local_step, towers - self.local_step
        if not new:
            return
        # A restore takes steps back: the global step before these need not be that of the last look, and one
        # window may not span it.
        if global_step - new < self.global_step:
            windows.flush()
        windows.add_made_together(towers, new, loss, global_step - new, global_step)
        self.local_step, self.global_step, self.loss = towers, global_step, loss
        summary_steps, every = self._task.settings.summary_steps, self._task.settings.steps_to_validate
        due = towers - towers % summary_steps if summary_steps else 0
        if due > before and self.summaries.due(due):
            self.summaries.write(global_step, self.scalars())
        if towers // every > before // every:
            average = f"AvgTime: {self.average_milliseconds():.2f}ms"
            say(f"Step: {towers}, global step: {global_step}, Cost: {loss:.4f}, {average}")

    def close(self) -> None:
        """Read them for the last time, and write what is not written yet."""
        if self._windows is not None:
            self.look(0)
            self._windows.flush()

    def print_summary(self) -> None:
        """The lines at the end, such as those of a worker that takes steps of its own."""
        if self.local_step:
            self.print_totals()
            say(f"Steps of this worker: {self.local_step}, global step: {self.global_step}")
