"""Real tasks of the trainer as processes on loopback, each with its own run directory, as on its own host."""

import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from tests.repository import ROOT
from tests.trainer.forked import ForkedProcess
from tests.trainer.ports import free_ports
from trainer.contract.records import Record, events_file, read_records
from trainer.contract.task_names import split_name
from trainer.process.port_probes import REFUSED, probe

PROGRAM = ("-m", "trainer")
# What tasks are given unless a test gives them something else. Their runs are short, and TensorFlow prepares
# a graph for each number of steps in a call: for more of them that would take longer than all the steps.
FOR_SHORT_RUNS = ("--steps_per_call=4",)
# The trainer for runs without an end of their own.
PAUSING = (str(ROOT / "tests" / "trainer" / "pausing_program.py"),)


class _Process(Protocol):
    def poll(self) -> int | None: ...


Process = TypeVar("Process", bound=_Process)


def until(
    condition: Callable[[], bool], what: str, seconds: float = 150, more: Callable[[], str] = lambda: ""
) -> None:
    """Wait for a condition; fail with `more` words when it does not come."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited for: {what}\n{more()}"
        time.sleep(0.05)


class Processes(Generic[Process]):
    """Tasks by their names, and what they print and write below one folder."""

    def __init__(self, folder: Path) -> None:
        """Take the folder; nothing is started yet."""
        self.folder = folder
        self.processes: dict[str, Process] = {}
        self.ended: dict[str, float] = {}
        self.environment: dict[str, str] = {}  # more of what the next tasks to start are given

    def wait(self, *tasks: str, seconds: float = 150) -> dict[str, int]:
        """Task -> exit code, once they have ended by themselves; of all started where none is named."""
        codes: dict[str, int] = {}
        waiting = tasks or tuple(self.processes)

        def all_ended() -> bool:
            for task in set(waiting) - set(codes):
                code = self.processes[task].poll()
                if code is not None:
                    codes[task], self.ended[task] = code, time.monotonic()
            return len(codes) == len(waiting)

        self.until(all_ended, f"the end of {', '.join(waiting)}", seconds)
        return codes

    def has_ended(self, task: str) -> bool:
        """Whether a task that was started has ended."""
        return self.processes[task].poll() is not None

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 150) -> None:
        """Wait for a condition; fail with everything the tasks printed when it does not come."""
        until(condition, what, seconds, self.outputs)

    def directory(self, task: str) -> Path:
        """The run directory of a task, as on the disk of its own host."""
        return self.folder / task

    def records(self, task: str, event: str = "") -> list[Record]:
        """The records of a task, of one event where it is named; none before it has written any."""
        file = events_file(self.directory(task), *split_name(task))
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

    def metrics(self) -> dict[str, float]:
        """What the chief found when it evaluated the model for the last time."""
        found = self.records("worker0", "evaluated")[-1].fields["metrics"]
        assert isinstance(found, dict)
        return found

    def assert_one_fingerprint(self, *clients: str) -> None:
        """Each client has read the fingerprint of the last checkpoint, at its global step."""
        from trainer.model.checkpoints import read_checkpoint

        step = self.records("worker0", "finished")[-1].integer("global_step")
        saved, problem = read_checkpoint(self.directory("worker0") / f"checkpoints/model.ckpt-{step}")
        assert saved, problem
        expected = (saved.fingerprint, step)
        for client in clients:
            fields = self.records(client, "finished")[-1].fields
            assert (fields.get("fingerprint"), fields.get("fingerprint_step")) == expected, self.outputs()

    def progress(self, task: str = "worker0") -> dict[str, object]:
        """The task's progress.json; empty where there is none yet."""
        path = self.directory(task) / "progress.json"
        content: dict[str, object] = json.loads(path.read_text()) if path.exists() else {}
        return content

    def global_step(self) -> int:
        """The global step that the chief has told last; 0 before it."""
        value = self.progress().get("global_step", 0)
        return value if isinstance(value, int) else 0

    def wall(self) -> float:
        """When the chief told its progress last, in seconds since the epoch; 0 before it."""
        value = self.progress().get("wall", 0.0)
        return value if isinstance(value, float) else 0.0

    def output(self, task: str) -> str:
        """What a task printed."""
        path = self.output_file(task)
        return path.read_text() if path.exists() else ""

    def outputs(self) -> str:
        """What all printed."""
        return "\n".join(f"== {task}\n{self.output(task)}" for task in self.processes)

    def output_file(self, task: str) -> Path:
        """Where it goes."""
        return self.folder / f"{task}.out"


class Cluster(Processes[ForkedProcess]):
    """The tasks of a run. Leaving its context kills those that are left."""

    def __init__(
        self,
        folder: Path,
        ps: int = 1,
        workers: int = 2,
        flags: Sequence[str] = (),
        *,
        servers: Sequence[int] = (),
        elsewhere: Sequence[int] = (),
        program: Sequence[str] = PROGRAM,
    ) -> None:
        """Choose free ports; nothing is started yet. `servers` has the workers with a server of their own.

        The tasks `elsewhere`, by their places among ps and then workers, have another host's address. All
        tasks run the `program`, unless they are started with another.
        """
        super().__init__(folder)
        ports = enumerate(free_ports(ps + workers))
        addresses = [f"127.0.0.{2 if place in elsewhere else 1}:{port}" for place, port in ports]
        self.hosts = {"ps": addresses[:ps], "worker": addresses[ps:]}
        self.tasks = [f"{job}{index}" for job, hosts in self.hosts.items() for index in range(len(hosts))]
        self.tasks += [f"server{index}" for index in servers]
        self.flags = (*FOR_SHORT_RUNS, *flags)
        self.codes: dict[str, int] = {}
        self._program = program
        self._flags: dict[str, Sequence[str]] = {}

    def __enter__(self) -> "Cluster":
        """Return the cluster."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill what is left."""
        for process in self.processes.values():
            process.kill()
            process.wait()

    def start(self, *tasks: str, flags: Sequence[str] | None = None, program: Sequence[str] = ()) -> None:
        """Start tasks, all where none is named, with more flags; None: those of the task's last start."""
        for task in tasks or self.tasks:
            if flags is not None:
                self._flags[task] = flags
            job, index = split_name(task)
            command = [*(program or self._program), f"--job_name={job}", f"--task_index={index}"]
            command += [f"--{name}_hosts={','.join(hosts)}" for name, hosts in self.hosts.items()]
            command += ["--run_id=test", f"--run_directory={self.directory(task)}", *self.flags]
            command += self._flags.get(task, ())
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
            environment |= self.environment
            self.directory(task).mkdir(parents=True, exist_ok=True)
            self.processes[task] = ForkedProcess(command, self.folder, environment, self.output_file(task))

    def signal(self, task: str, number: signal.Signals) -> None:
        """Send a signal to a task, and wait for its end where that is sure."""
        self.processes[task].send_signal(number)
        if number == signal.SIGKILL:
            self.processes[task].wait(10)

    def serve(self, *tasks: str) -> None:
        """Start tasks that serve, and wait until they do: a short deadline is then for who is missing."""
        self.start(*tasks)
        for task in tasks:
            self.until(lambda of=task: "listens at" in self.output(of), f"{task} to listen")  # type: ignore[misc]

    def until_steps(self, more: int) -> None:
        """Wait until the chief has told of so many more global steps."""
        goal = self.global_step() + more
        self.until(lambda: self.global_step() >= goal, f"global step {goal}")

    def nothing_listens(self) -> bool:
        """Whether no task has left a process at its port."""
        addresses = (*self.hosts["ps"], *self.hosts["worker"])
        return all(probe(address) == REFUSED for address in addresses)
