"""Real tasks of the trainer as processes on loopback, each with its own run directory, as on its own host."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from tests.trainer.forked import ForkedProcess
from trainer.records import Record, events_file, read_records

ROOT = Path(__file__).parents[2]
PROGRAM = ("-m", "trainer")


class Cluster:
    """The tasks of a run. Leaving its context kills those that are left."""

    def __init__(
        self,
        folder: Path,
        ps: int = 1,
        workers: int = 2,
        flags: Sequence[str] = (),
        servers: Sequence[int] = (),
    ) -> None:
        """Choose free ports; nothing is started yet. `servers` has the workers with a server of their own."""
        self.folder, self.flags = folder, flags
        addresses = [f"127.0.0.1:{port}" for port in free_ports(ps + workers)]
        self.hosts = {"ps": addresses[:ps], "worker": addresses[ps:]}
        self.tasks = [f"{job}{index}" for job, hosts in self.hosts.items() for index in range(len(hosts))]
        self.tasks += [f"server{index}" for index in servers]
        self.started: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.codes: dict[str, int] = {}
        self.environment: dict[str, str] = {}  # more of what the next tasks to start are given
        self._processes: dict[str, ForkedProcess] = {}

    def __enter__(self) -> Cluster:
        """Return the cluster."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill what is left."""
        for process in self._processes.values():
            process.kill()
            process.wait()

    def start(self, *tasks: str, flags: Sequence[str] = (), program: Sequence[str] = PROGRAM) -> None:
        """Start tasks, all where none is named; a task that ran before is started again."""
        for task in tasks or self.tasks:
            job, index = _job_and_index(task)
            command = [*program, f"--job_name={job}", f"--task_index={index}"]
            command += [f"--{name}_hosts={','.join(hosts)}" for name, hosts in self.hosts.items()]
            command += ["--run_id=test", f"--run_directory={self.directory(task)}", *self.flags, *flags]
            environment = {
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "CUDA_VISIBLE_DEVICES": "",
            } | self.environment
            self.directory(task).mkdir(parents=True, exist_ok=True)
            self._processes[task] = ForkedProcess(command, self.folder, environment, self._output_file(task))
            self.started[task] = time.monotonic()

    def wait(self, *tasks: str, seconds: float = 150) -> dict[str, int]:
        """Task -> exit code, once they have ended by themselves; of all started where none is named."""
        codes = {}
        deadline = time.monotonic() + seconds
        waiting = {task: self._processes[task] for task in tasks or self._processes}
        while waiting:
            for task, process in list(waiting.items()):
                code = process.poll()
                if code is not None:
                    codes[task], self.ended[task] = code, time.monotonic()
                    del waiting[task]
            assert time.monotonic() < deadline, f"still running: {list(waiting)}\n{self.outputs()}"
            time.sleep(0.05)
        return codes

    def signal(self, task: str, number: signal.Signals) -> None:
        """Send a signal to a task, and wait for its end where that is sure."""
        self._processes[task].send_signal(number)
        if number == signal.SIGKILL:
            self._processes[task].wait(10)

    def has_ended(self, task: str) -> bool:
        """Whether a task that was started has ended."""
        return self._processes[task].poll() is not None

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 150) -> None:
        """Wait for a condition; fail with everything the tasks printed when it does not come."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"waited for: {what}\n{self.outputs()}"
            time.sleep(0.05)

    def directory(self, task: str) -> Path:
        """The run directory of a task, as on the disk of its own host."""
        return self.folder / task

    def records(self, task: str, event: str = "") -> list[Record]:
        """The records of a task, of one event where it is named; none before it has written any."""
        file = events_file(self.directory(task), *_job_and_index(task))
        if not file.exists():
            return []
        records, complaints = read_records(file)
        assert complaints == [], complaints
        return [record for record in records if event in {"", record.event}]

    def only(self, task: str, event: str) -> Record:
        """The one record of this event."""
        records = self.records(task, event)
        assert len(records) == 1, f"{task}: {len(records)} records {event}\n{self.outputs()}"
        return records[0]

    def global_step(self) -> int:
        """The global step that the chief has told last; 0 before it."""
        value = self.progress().get("global_step", 0)
        return value if isinstance(value, int) else 0

    def progress(self) -> dict[str, object]:
        """The chief's progress.json; empty where there is none yet."""
        path = self.directory("worker0") / "progress.json"
        content: dict[str, object] = json.loads(path.read_text()) if path.exists() else {}
        return content

    def output(self, task: str) -> str:
        """What a task printed."""
        return self._output_file(task).read_text()

    def outputs(self) -> str:
        """What all printed."""
        return "\n".join(f"== {task}\n{self.output(task)}" for task in self.started)

    def _output_file(self, task: str) -> Path:
        return self.folder / f"{task}.out"


def _job_and_index(task: str) -> tuple[str, int]:
    job = task.rstrip("0123456789")
    return job, int(task.removeprefix(job))


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nothing listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for holder in sockets:
            holder.bind(("127.0.0.1", 0))
        return [holder.getsockname()[1] for holder in sockets]
    finally:
        for holder in sockets:
            holder.close()
