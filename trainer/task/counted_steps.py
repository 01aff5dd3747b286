"""A worker's steps, counted for its records, lines and summaries: their number, speed and loss."""

import math
import time

import tensorflow as tf

from trainer.contract.step_windows import StepWindows
from trainer.coordination.running_task import RunningTask
from trainer.process.console import say
from trainer.task.summaries import Summaries


class CountedSteps:
    """The count of a worker's steps; `loss` is the last step's loss, nan before the first step.

    The subclass Steps counts the steps that the worker takes; Towers counts the worker's parts of a client's
    steps.
    """

    def __init__(self, task: RunningTask, graph: tf.Graph) -> None:
        self._task, self._batch_size, self._batches = task, task.settings.batch_size, task.settings.push_every
        directory, every = task.options.run_directory, task.settings.summary_steps
        self.summaries = Summaries(directory, task.cluster.task, graph, every)
        self._windows: StepWindows | None = None
        self._since: float | None = None
        self._printed = self._summarised = (0, 0.0)
        self.local_step = self.global_step = 0
        self.loss = math.nan

    @property
    def seconds(self) -> float:
        """The seconds since the first call of `begin`; 0.0 before."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    @property
    def finished_fields(self) -> dict[str, object]:
        """The fields local_step, global_step, seconds, examples and loss of a worker's `finished` record."""
        return {
            "local_step": self.local_step,
            "global_step": self.global_step,
            "seconds": round(self.seconds, 6),
            "examples": self.local_step * self._batches * self._batch_size,
            "loss": self.loss,
        }

    def begin(self, last_step: int) -> StepWindows:
        """Begin to count the steps up to global step `last_step`; return the new windows that record them.

        Earlier steps of this process stay counted.
        """
        now = time.monotonic()
        self._since = self._since or now
        self._printed = self._summarised = (self.local_step, now)
        arguments = (self._batch_size, self.local_step, self._batches)
        self._windows = StepWindows(self._task.records, last_step, *arguments)
        return self._windows

    def print_totals(self) -> None:
        """Print two lines: the seconds since the first step began, and the last loss."""
        say(f"Total Time: {self.seconds:.2f}s\nFinal Cost: {self.loss:.4f}")

    def average_milliseconds(self) -> float:
        """Return the mean milliseconds of a step since the last call of this method or of `begin`."""
        (steps, when), now = self._printed, time.monotonic()
        self._printed = (self.local_step, now)
        return 1000 * (now - when) / max(self.local_step - steps, 1)

    def scalars(self) -> dict[str, float]:
        """Return {"loss": the last loss, "steps_per_second": mean since the last call}.

        The mean begins at the last call of this method or of `begin`.
        """
        (steps, when), now = self._summarised, time.monotonic()
        self._summarised = (self.local_step, now)
        return {"loss": self.loss, "steps_per_second": (self.local_step - steps) / (now - when)}
