"""A run of train.yml, with the moment of each line that people saw."""

import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field

from tests.faults.cluster import Cluster, wait_for


@dataclass
class Watched:
    """A `train.yml` that is going on; `lines` has each printed line with its moment, in Unix seconds.

    `hit_at` is the moment at which a fault bit, where the fault had to wait for it; else 0.
    """

    cluster: Cluster
    run_id: str
    process: subprocess.Popen[str]
    lines: list[tuple[float, str]] = field(default_factory=list)
    hit_at: float = 0.0

    @classmethod
    def start(cls, cluster: Cluster, run_id: str, *options: str, before: tuple[str, ...] = ()) -> "Watched":
        """Start `train.yml` for a run, with the playbooks `before` it in one command."""
        # It ends with this process, whose hosts are gone then.
        ending = ["setpriv", "--pdeathsig", "TERM"]
        command = [*ending, *cluster.command("-e", f"run_id={run_id}", *options), *before, "train.yml"]
        process = subprocess.Popen(
            command,
            cwd=cluster.folder,
            env=cluster.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        watched = cls(cluster, run_id, process)
        threading.Thread(target=watched._read, daemon=True).start()
        return watched

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.append((time.time(), line.rstrip("\n")))

    def await_step(self, step: int) -> int:
        """Wait until the run has reached a global step, or has ended; return the step that was seen."""
        seen = -1

        def reached() -> bool:
            nonlocal seen
            seen = self.cluster.global_step(self.run_id)
            return seen >= step or self.process.poll() is not None

        wait_for(reached, f"global step {step}")
        return seen

    def first_line(self, patterns: tuple[str, ...], since: float) -> tuple[float, str] | None:
        """Return the first line since a moment that has one of these texts."""
        later = ((at, line) for at, line in [*self.lines] if at >= since)
        return next(((at, line) for at, line in later if any(text in line for text in patterns)), None)

    def follow(self, other: "Watched") -> None:
        """Go on with another `train.yml` of the same run."""
        self.process, self.lines = other.process, other.lines

    def kill(self) -> None:
        """Kill the playbook, as a crash of the controller does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> int:
        """Wait until the playbook ends; return its exit status."""
        wait_for(lambda: self.process.poll() is not None, f"the end of {self.run_id}")
        return self.process.returncode
