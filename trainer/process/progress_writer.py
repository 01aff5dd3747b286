"""What a task tells while it trains: `progress.json`, and systemd."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock

from trainer.contract.json_files import write_json
from trainer.process.console import say
from trainer.process.port_probes import Missing, listed
from trainer.process.systemd import notify

_SECONDS_BETWEEN_REPORTS = 0.5


@dataclass
class ProgressWriter:
    """Where the run stands, told to systemd by every worker and written to `progress.json` by the chief."""

    run_id: str
    workers: int
    path: Path | None = None
    phase: str = "waiting"
    global_step: int = 0
    last_step: int = 0
    loss: float | None = None
    contributions: list[int] = field(default_factory=list)
    restarts: list[int] = field(init=False)
    missing: Sequence[Missing] = ()
    reason: str = ""
    _next: float = 0.0
    _complained: bool = False
    _writing: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        """Begin without any restart."""
        self.restarts = [0] * self.workers

    def wait_for(self, missing: Sequence[Missing], said: str) -> None:
        """Print who is waited for after what is `said`, and tell it at once; where that is new."""
        if self.phase == "waiting" and missing == self.missing:
            self.tell_in_time()
            return
        say(f"{said} {listed(missing)}")
        self.missing = missing
        self.change("waiting")

    def train(self) -> None:
        """Tell at once that all are there."""
        self.missing = ()
        self.change("training")

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
        content = {
            "run_id": self.run_id,
            "phase": self.phase,
            "wall": round(time.time(), 3),
            "global_step": self.global_step,
            "last_step": self.last_step,
            "loss": self.loss,
            "contributions": self.contributions or [0] * self.workers,
            "restarts": self.restarts,
            "missing": [asdict(missing) for missing in self.missing],
            "reason": self.reason,
        }
        try:
            with self._writing:  # a thread that takes steps tells, and one that watches it
                write_json(self.path, content)
        except OSError as error:
            if not self._complained:
                say(f"progress cannot be written: {self.path}: {error.strerror}")
            self._complained = True

    @property
    def status(self) -> str:
        """One line for `systemctl status`."""
        if self.phase == "waiting":
            names = ", ".join(missing.task for missing in self.missing)
            return f"waiting for {names}" if names else "starting"
        loss = "" if self.loss is None else f", loss {self.loss:.4f}"
        text = f"{self.phase}: step {self.global_step} of {self.last_step}{loss}"
        return f"{text}: {self.reason}" if self.reason else text
