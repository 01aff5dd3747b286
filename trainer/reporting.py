"""What a worker tells while it trains: windows of steps to the records, `progress.json`, and systemd."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainer.console import say
from trainer.records import RecordWriter
from trainer.systemd import notify

_RECORDS_A_RUN = 200
_WINDOW_SECONDS = 30.0
_SECONDS_BETWEEN_REPORTS = 0.5


class StepWindows:
    """Gathers steps into `step` records: about 200 in a run from each worker, and one every 30 s."""

    def __init__(self, records: RecordWriter, last_step: int, batch_size: int) -> None:
        """Take where to write, how long the run is, and how many examples a step has."""
        self._records = records
        self._steps_a_window = max(1, math.ceil(last_step / _RECORDS_A_RUN))
        self._batch_size = batch_size
        self._losses: list[float] = []
        self._staleness: list[int] = []
        self._first_before = self._last_after = self._local_step = 0
        self._opened = time.monotonic()

    def add(self, local_step: int, loss: float, before: int, after: int) -> None:
        """Count a step that went from global step `before` to `after`."""
        if not self._losses:
            self._first_before = before
        self._losses.append(loss)
        self._staleness.append(after - before - 1)
        self._local_step, self._last_after = local_step, after
        full = len(self._losses) >= self._steps_a_window
        if full or time.monotonic() - self._opened >= _WINDOW_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the steps counted so far, if any."""
        now = time.monotonic()
        steps = len(self._losses)
        if steps:
            self._records.write(
                "step",
                {
                    "local_step": self._local_step,
                    "steps": steps,
                    "global_step_before": self._first_before,
                    "global_step_after": self._last_after,
                    "loss": self._losses[-1],
                    "loss_mean": sum(self._losses) / steps,
                    "examples": steps * self._batch_size,
                    "seconds": round(now - self._opened, 6),
                    "staleness_mean": round(sum(self._staleness) / steps, 4),
                    "staleness_max": max(self._staleness),
                },
            )
        self._losses, self._staleness = [], []
        self._opened = now


@dataclass
class Progress:
    """Where the run stands, told to systemd by every worker and written to `progress.json` by the chief."""

    run_id: str
    workers: int
    path: Path | None = None
    phase: str = "waiting"
    global_step: int = 0
    last_step: int = 0
    loss: float | None = None
    contributions: list[int] = field(default_factory=list)
    missing: Sequence[dict[str, str]] = ()
    reason: str = ""
    _next: float = 0.0
    _complained: bool = False

    def change(self, phase: str, reason: str = "") -> None:
        """Enter a phase and tell it at once."""
        self.phase, self.reason = phase, reason
        self.tell()

    def tell_in_time(self) -> None:
        """Tell where the run stands, at most twice a second. Calling this is what the watchdog waits for."""
        if time.monotonic() >= self._next:
            self.tell()

    def tell(self) -> None:
        """Tell where the run stands."""
        self._next = time.monotonic() + _SECONDS_BETWEEN_REPORTS
        notify("WATCHDOG=1", f"STATUS={self.status}")
        if self.path is None:
            return
        loss = self.loss if self.loss is not None and math.isfinite(self.loss) else None
        content = {
            "run_id": self.run_id,
            "phase": self.phase,
            "wall": round(time.time(), 3),
            "global_step": self.global_step,
            "last_step": self.last_step,
            "loss": loss,
            "contributions": self.contributions or [0] * self.workers,
            "missing": list(self.missing),
            "reason": self.reason,
        }
        try:
            temporary = self.path.with_name(f".{self.path.name}.new")
            temporary.write_text(json.dumps(content) + "\n")
            temporary.replace(self.path)
        except OSError as error:
            if not self._complained:
                say(f"progress cannot be written: {self.path}: {error.strerror}")
            self._complained = True

    @property
    def status(self) -> str:
        """One line for `systemctl status`."""
        if self.phase == "waiting":
            names = ", ".join(entry["task"] for entry in self.missing)
            return f"waiting for {names}" if names else "starting"
        loss = "" if self.loss is None else f", loss {self.loss:.4f}"
        text = f"{self.phase}: step {self.global_step} of {self.last_step}{loss}"
        return f"{text}: {self.reason}" if self.reason else text
