"""Detects that a worker's loss has diverged: it stays far above the loss of the run's first model."""

import json
import math
from pathlib import Path

from trainer.contract.records import events_file
from trainer.task.gradient_samples import FIRST_SAMPLES

# A loss is far above the first loss if it exceeds this many times the first loss.
_FAR = 10.0


class Divergence:
    """Tells whether a worker's losses stay far above the first loss: more than ten times as high.

    A finite but high loss could train a useless model for days.
    """

    def __init__(self, most_steps: int, first: float) -> None:
        """Let `add` return True after `most_steps` steps in a row with a loss far above `first`; 0: never.

        If `first` is nan, no loss is far above it.
        """
        self._most_steps, self._steps = most_steps, 0
        self.first = first
        # The global step of the first step in a row with a high loss; None while the loss is not high.
        self.high_since: int | None = None

    def add(self, loss: float, global_step: int) -> bool:
        """Count a step; return whether the last `most_steps` steps all had a loss far above the first.

        Always False if `most_steps` is 0. A nan is not far above.
        """
        if loss > _FAR * self.first:
            self._steps += 1
            self.high_since = global_step if self.high_since is None else self.high_since
        else:
            self._steps, self.high_since = 0, None
        return 0 < self._most_steps <= self._steps


def first_loss_in(run_directory: Path | None, job: str, index: int) -> float:
    """Return the loss of the run's first model, from the task's first `gradients` records.

    The result is the highest of the first three losses, because one small batch may have almost no loss by
    chance. It is nan if there is no such record before the first `step` record, if the file cannot be read,
    or without a run directory (None).
    """
    losses: list[float] = []
    if run_directory is None:
        return math.nan
    try:
        with events_file(run_directory, job, index).open("rb") as file:
            for line in file:
                if b'"event":"gradients"' in line:
                    recorded = json.loads(line)["losses"].values()
                    losses += [float(loss) for loss in recorded if isinstance(loss, int | float)]
                if len(losses) >= FIRST_SAMPLES or b'"event":"step"' in line:
                    break
    except (OSError, ValueError, KeyError, AttributeError):
        return math.nan
    return max(losses, default=math.nan)
