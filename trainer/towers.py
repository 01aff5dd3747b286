"""What a worker tells of the towers that a client's graph computes on it: lines, `step` records, its end."""

from __future__ import annotations

import math
import time

import tensorflow as tf

from trainer.calls import CallTookTooLong
from trainer.console import say
from trainer.ledger import OwnPart
from trainer.step_windows import StepWindows
from trainer.summaries import Summaries
from trainer.task import Task


class Towers:
    """The towers computed in this process, read from the variables on its own device."""

    def __init__(self, task: Task, part: OwnPart) -> None:
        """Take where they are counted; none is computed yet."""
        self._task, self._part = task, part
        self._windows: StepWindows | None = None
        self._since: float | None = None
        self._printed = self._summarised = (0, 0.0)
        self._summaries = Summaries(
            task.options.run_directory, task.cluster.task, tf.Graph(), task.settings.summary_steps
        )
        self.local_step = self.global_step = 0
        self.loss = math.nan

    @property
    def seconds(self) -> float:
        """How long ago the first tower was seen; 0 before it."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    @property
    def finished(self) -> dict[str, object]:
        """What the `finished` record of a worker holds beside its reason."""
        return {
            "local_step": self.local_step,
            "global_step": self.global_step,
            "seconds": round(self.seconds, 6),
            "examples": self.local_step * self._task.settings.batch_size,
            "loss": self.loss,
        }

    @property
    def line(self) -> str:
        """One line for `systemctl status`."""
        return f"serving a run: global step {self.global_step}, towers of this worker {self.local_step}"

    def look(self, last_step: int) -> None:
        """Read how many there are now; `last_step` is the run's."""
        if self._windows is None:
            self._windows = StepWindows(self._task.records, last_step, self._task.settings.batch_size)
            self._since = time.monotonic()
            self._printed = self._summarised = (0, self._since)
        try:
            towers, global_step, loss = self._part.towers()
        except (tf.errors.OpError, CallTookTooLong) as error:
            say(f"this task's own server does not answer: {error}")
            return
        new = towers - self.local_step
        if not new:
            return
        # A restore takes steps back: the global step before these need not be that of the last look, and one
        # window may not span it.
        if global_step - new < self.global_step:
            self._windows.flush()
        self._windows.add_made_together(towers, new, loss, global_step - new, global_step)
        self.local_step, self.global_step, self.loss = towers, global_step, loss
        self._summarise(new)
        every = self._task.settings.steps_to_validate
        if towers // every > self._printed[0] // every:
            self._print()

    def close(self) -> None:
        """Read them for the last time, and write what is not written yet."""
        if self._windows is not None:
            self.look(0)
            self._windows.flush()

    def print_summary(self) -> None:
        """The lines at the end, such as those of a worker that takes steps of its own."""
        if not self.local_step:
            return
        say(f"Total Time: {self.seconds:.2f}s")
        say(f"Final Cost: {self.loss:.4f}")
        say(f"Steps of this worker: {self.local_step}, global step: {self.global_step}")

    def _summarise(self, new: int) -> None:
        """Write loss and speed where a step that is due is among the new ones."""
        every = self._task.settings.summary_steps
        due = self.local_step - self.local_step % every if every else 0
        if due <= self.local_step - new or not self._summaries.due(due):
            return
        now = time.monotonic()
        steps_before, when = self._summarised
        speed = (self.local_step - steps_before) / (now - when)
        self._summaries.write(self.global_step, {"loss": self.loss, "steps_per_second": speed})
        self._summarised = (self.local_step, now)

    def _print(self) -> None:
        now = time.monotonic()
        steps_before, when = self._printed
        milliseconds = 1000 * (now - when) / (self.local_step - steps_before)
        say(
            f"Step: {self.local_step}, global step: {self.global_step}, Cost: {self.loss:.4f},"
            f" AvgTime: {milliseconds:.2f}ms"
        )
        self._printed = (self.local_step, now)
