"""Whether a worker's loss has left for good: it stays far above that of the run's first model."""

import json
import math
from pathlib import Path

from trainer.contract.records import events_file
from trainer.task.gradient_samples import FIRST_SAMPLES

# The loss is far above its first from this many times on.
_FAR = 10.0


class Divergence:
    """Watches the losses of a worker's steps: one that stays finite could train a useless model for days."""

    def __init__(self, most_steps: int, first: float) -> None:
        """Take the steps in a row that may have a loss far above the first; 0 allows any number.

        If the first loss is nan, no loss is far above it.
        """
        self._most_steps, self._steps = most_steps, 0
        self.first = first
        # The global step at which the loss left.
        self.left_at: int | None = None

    def add(self, loss: float, global_step: int) -> bool:
        """Count a step; return whether the loss has been far above the first for too long."""
        if loss > _FAR * self.first:
            self._steps += 1
            self.left_at = global_step if self.left_at is None else self.left_at
        else:
            self._steps, self.left_at = 0, None
        return 0 < self._most_steps <= self._steps


def first_loss_in(run_directory: Path | None, job: str, index: int) -> float:
    """Return the loss of the run's first model, by the task's first `gradients` records; nan without any.

    It is the highest of some batches, because a single small batch may have almost no loss by chance.
    """
    losses: list[float] = []
    if run_directory is None:
        return math.nan
    try:
        with events_file(run_directory, job, index).open("rb") as file:
            for line in file:
                if b'"event":"gradients"' in line:
                    found = json.loads(line)["losses"].values()
                    losses += [float(loss) for loss in found if isinstance(loss, int | float)]
                if len(losses) >= FIRST_SAMPLES or b'"event":"step"' in line:
                    break
    except (OSError, ValueError, KeyError, AttributeError):
        return math.nan
    return max(losses, default=math.nan)
