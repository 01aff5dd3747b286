"""Training steps gathered into windows, one for each `step` record, so that a long run has few records."""

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from .records import RecordWriter

_RECORDS_A_RUN = 200
# The first windows are short, because the loss falls most in the first steps: a window may have 1/25 of the
# number of steps before it. That makes some 300 windows in a million steps.
_SHARE_OF_THE_PAST = 25
_WINDOW_SECONDS = 30.0


class Read(NamedTuple):
    """The moment at which a step read its variables.

    `global_step` is the global step at that moment. `own_steps_since` is how many steps of this same worker
    were counted after that moment and before the step.
    """

    global_step: int
    own_steps_since: int


class StepWindows:
    """Gathers steps into `step` records: some 300 in a run from each worker, and at least one every 30 s."""

    def __init__(
        self,
        records: RecordWriter,
        last_step: int,
        batch_size: int = 0,
        local_step: int = 0,
        batches: int = 1,
    ) -> None:
        """Begin the first window.

        Args:
            records: the writer.
            last_step: the run's last global step; 0 if unknown.
            batch_size: the number of examples in a batch.
            local_step: the local step of the last step before the first window.
            batches: the number of batches in a step.

        """
        self._records = records
        self._last_step = last_step
        self._batches, self._examples_of_a_step = batches, batches * batch_size
        self._losses: list[float] = []
        self._staleness: list[int] = []
        self._waiting_seconds: float | None = None
        self._steps = self._examples = self._own_steps_behind = 0
        self._unplaced = 0.0
        self._trained: int | None = None
        self._first_before = self._last_after = 0
        self._local_step = local_step
        self._opened = time.monotonic()

    def add(
        self,
        loss: float,
        before: int,
        after: int,
        waiting_seconds: float | None = None,
        read: Read | None = None,
    ) -> None:
        """Count a step that raised the global step from `before` to `after`; write nothing.

        `loss` is the loss of the step, `waiting_seconds` its waiting time (None: unknown). `read` is when the
        step read its variables; None means at `before`. If it read them earlier, `before` is the global step
        of this worker's previous step. The step's staleness is the number of other workers' steps since the
        reading.

        The caller must call `flush_in_time` afterwards; for several steps of one call into TensorFlow, only
        after the last step, because the time of each step is unknown.
        """
        read_at, own_steps_since = read or (before, 0)
        self._own_steps_behind += own_steps_since > 0
        # If the run ends while synchronous gradients are offered, `after` equals `before`.
        self._staleness.append(max(after - read_at - 1 - own_steps_since, 0))
        if waiting_seconds is not None:
            self._waiting_seconds = (self._waiting_seconds or 0.0) + waiting_seconds
        self._add(loss, before, after, self._examples_of_a_step, 1)

    def add_unread(self, loss: float | None, before: int, after: int, examples: int, steps: int = 1) -> None:
        """Count `steps` steps of unknown staleness, then call `flush_in_time`.

        `before` and `after` are the last global steps that the task read before and after the steps.
        `examples` is the number of examples in all these steps. `loss` is the last loss, None if unknown; the
        record of a window without a known loss has no loss.
        """
        self._add(loss, before, after, examples, steps)
        self.flush_in_time()

    def _add(self, loss: float | None, before: int, after: int, examples: int, steps: int) -> None:
        if not self._steps:
            self._first_before = before
        if loss is not None:
            self._losses.append(loss)
        self._local_step += steps
        self._steps += steps
        self._examples += examples
        self._last_after = after

    def add_window(
        self,
        losses: Sequence[float | None],
        before: int,
        after: int,
        unplaced: int = 0,
        trained: int | None = None,
    ) -> None:
        """Count steps, and write them at once, with steps that were counted before, as one record.

        `losses` has an entry for each step, None if unknown. `before` and `after` are the global steps read
        before and after all of them. `unplaced` is the number of steps that may belong to a neighbouring
        window, `trained` the number of steps that changed the model (None: unknown).
        """
        for loss in losses:
            self._add(loss, before, after, 0, 1)
        self.note_unplaced(unplaced)
        self._trained = trained
        self.flush()

    def note_unplaced(self, steps: float) -> None:
        """Note that `steps` steps of the present window may belong to a neighbouring window.

        Infinity means that they may belong to any window. Of several calls, the largest number counts.
        """
        self._unplaced = max(self._unplaced, steps)

    @property
    def room(self) -> int:
        """How many more steps the present window takes; 0 or less if it is full."""
        run_share = math.ceil(self._last_step / _RECORDS_A_RUN) or math.inf
        return max(1, int(min(self._local_step // _SHARE_OF_THE_PAST, run_share))) - self._steps

    @property
    def written(self) -> bool:
        """Whether all counted steps are in records; True if none was counted."""
        return not self._steps

    def flush_in_time(self) -> None:
        """Write the counted steps if the window is full, or has been open for 30 s; else do nothing."""
        if self.room <= 0 or time.monotonic() - self._opened >= _WINDOW_SECONDS:
            self.flush()

    def add_made_together(self, local_step: int, steps: int, loss: float, before: int, after: int) -> None:
        """Count `steps` steps in which all workers took part, so none is stale; then call `flush_in_time`.

        `local_step` is the local step after them, `loss` the last step's loss; `before` and `after` are the
        global steps before and after them.
        """
        self._staleness += [0] * steps
        self._local_step = local_step - steps
        self.add_unread(loss, before, after, steps * self._examples_of_a_step, steps)

    def flush(self) -> None:
        """Write a `step` record of the counted steps, unless there are none; begin a new window."""
        now = time.monotonic()
        if self._steps:
            fields: dict[str, object] = {
                "local_step": self._local_step,
                "steps": self._steps,
                "global_step_before": self._first_before,
                "global_step_after": self._last_after,
                "examples": self._examples,
                "seconds": round(now - self._opened, 6),
            }
            if self._batches > 1:
                fields["batches"] = self._steps * self._batches
            if self._losses:
                fields["loss"] = self._losses[-1]
                fields["loss_mean"] = sum(self._losses) / len(self._losses)
            if self._staleness:
                fields["staleness_mean"] = round(sum(self._staleness) / len(self._staleness), 4)
                fields["staleness_max"] = max(self._staleness)
                # How many steps have a staleness of 0, of 1, of 2 to 3, of 4 to 7, and so on.
                buckets = [step.bit_length() for step in self._staleness]
                fields["staleness_histogram"] = [buckets.count(bucket) for bucket in range(max(buckets) + 1)]
            if self._unplaced:
                fields["unplaced"] = int(min(self._unplaced, self._steps + 1))
            if self._trained is not None:
                fields["trained"] = self._trained
            if self._own_steps_behind:
                fields["own_steps_behind"] = self._own_steps_behind
            if self._waiting_seconds is not None:
                fields["waiting_seconds"] = round(self._waiting_seconds, 6)
            self._records.write("step", fields)
        self._losses, self._staleness, self._waiting_seconds = [], [], None
        self._steps = self._examples = self._own_steps_behind = 0
        self._unplaced, self._trained = 0.0, None
        self._opened = now
