"""A task's reports while it trains: to systemd, and in `progress.json`."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock

from trainer.contract.json_files import read_object, write_json
from trainer.host.task_traces import number
from trainer.process.console import say
from trainer.process.port_probes import Missing, in_a_line
from trainer.process.watchdog import Watchdog

_SECONDS_BETWEEN_REPORTS = 0.5


@dataclass
class ProgressWriter:
    """The state of the run. Every worker reports it to systemd, and the chief writes `progress.json`.

    Most fields are fields of `progress.json` (docs/contracts.md).

    Attributes:
        workers: the number of workers.
        path: the path of `progress.json`; None if this task does not write it.
        loss: the task's last loss; None if unknown.
        contributions: the number of steps of each worker, by the workers' indices; [] before the first step.
        restarts: how often each worker was restarted, by the workers' indices.
        missing: the tasks for which the run waits; () if it waits for none.
        evaluation: {"global_step": .., "metrics": ..} of the last evaluation; {} before the first.

    """

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
    steps_lost: int = 0
    still_seconds: float = 0.0
    evaluation: Mapping[str, object] = field(default_factory=dict)
    watchdog: Watchdog = field(default_factory=Watchdog)
    _next: float = 0.0
    _complained: bool = False
    _writing: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        """Set all restarts to 0, and read what an earlier process wrote about the same run.

        From its file come `global_step`, `steps_lost` and `still_seconds`; they are 0 without such a file.
        """
        self.restarts = [0] * self.workers
        earlier = read_object(self.path) if self.path else {}
        if earlier.get("run_id") == self.run_id:
            self.global_step = int(number(earlier.get("global_step")) or 0)
            self.steps_lost = int(number(earlier.get("steps_lost")) or 0)
            self.still_seconds = number(earlier.get("still_seconds")) or 0.0

    def report_missing(self, missing: Sequence[Missing], prefix: str) -> None:
        """Set the phase to "waiting" for these tasks, print a line that begins with `prefix`, and report.

        If the phase is "waiting" for equal tasks already, only call `report_if_due`. This does not wait.
        """
        if self.phase == "waiting" and missing == self.missing:
            self.report_if_due()
            return
        say(f"{prefix} {in_a_line(missing)}")
        self.missing = missing
        self.enter_phase("waiting")

    def report_training(self) -> None:
        """Set the phase to "training" and the missing tasks to none, and report at once."""
        self.missing = ()
        self.enter_phase("training")

    def enter_phase(self, phase: str, reason: str = "") -> None:
        """Set the phase and the reason ("" for none), and report at once."""
        self.phase, self.reason = phase, reason
        self.report()

    def report_if_due(self) -> None:
        """Report the state of the run if at least half a second has passed since the last report.

        The watchdog expects regular calls.
        """
        if time.monotonic() >= self._next:
            self.report()

    def report(self) -> None:
        """Report the state of the run to systemd, and write `progress.json` if this task has its `path`.

        If the file cannot be written, the first failure prints a line; nothing is raised.
        """
        self._next = time.monotonic() + _SECONDS_BETWEEN_REPORTS
        self.watchdog.sign(self.status)
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
            "steps_lost": self.steps_lost,
            "still_seconds": round(self.still_seconds, 3),
            "evaluation": self.evaluation,
            "missing": [asdict(missing) for missing in self.missing],
            "reason": self.reason,
        }
        try:
            with self._writing:  # two threads report: one takes steps, one watches it
                write_json(self.path, content)
        except OSError as error:
            if not self._complained:
                say(f"progress cannot be written: {self.path}: {error.strerror}")
            self._complained = True

    @property
    def status(self) -> str:
        """A line for `systemctl status`, such as "training: step 120 of 2000, loss 0.3123".

        In the phase "waiting" it is "waiting for ps0, worker1", or "starting" if no task is missing.
        """
        if self.phase == "waiting":
            names = ", ".join(missing.task for missing in self.missing)
            return f"waiting for {names}" if names else "starting"
        loss = "" if self.loss is None else f", loss {self.loss:.4f}"
        text = f"{self.phase}: step {self.global_step} of {self.last_step}{loss}"
        return f"{text}: {self.reason}" if self.reason else text
