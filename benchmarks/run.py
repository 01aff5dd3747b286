"""One run of the benchmark: it starts the tasks, measures between two marks, and ends the tasks."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Protocol

from benchmarks.data import ROOT
from benchmarks.figures import Figures, Sample, figures, figures_of_loss
from benchmarks.losses import LossReached, recorded_steps, when_reached
from benchmarks.network import NO_LIMITS, Hosts, Limits
from benchmarks.rows import SLOWER, Row, Workload
from trainer.contract.json_files import read_object
from trainer.contract.settings import value_text
from trainer.contract.task_names import split_name

_POLL_SECONDS, _SECONDS_BETWEEN_READINGS = 0.02, 1.0
_SECONDS_TO_RUN = 0.02
_LAST_STEP = 100_000_000
_TICKS = os.sysconf("SC_CLK_TCK")
_SHOWN = 1500
ENDED = "threads that ended"


class Process(Protocol):
    """A started process, with some methods of subprocess.Popen."""

    @property
    def pid(self) -> int | None: ...  # noqa: D102

    def poll(self) -> int | None: ...  # noqa: D102
    def send_signal(self, number: signal.Signals) -> None: ...  # noqa: D102
    def kill(self) -> None: ...  # noqa: D102
    def wait(self) -> object: ...  # noqa: D102


# A function that starts a process, given its command, environment, output file, network, and name in the
# network.
Start = Callable[[Sequence[str], Mapping[str, str], Path, Hosts, str], Process]


@dataclass(frozen=True)
class Marks:
    """When a run is measured, in seconds.

    Attributes:
        warm_up: from the first step to the first mark.
        between: from the first mark to the second.
        longest: how long after its first step the run may go on, until its loss is reached.
        to_begin: the time in which the first step must come.

    """

    warm_up: float
    between: float
    longest: float
    to_begin: float = 180.0


@dataclass(frozen=True)
class Setup:
    """What a run trains and how: its `row`, its `workload`, and the `limits` of its tasks.

    `seed` is for the order of examples and for the first values of variables.
    """

    row: Row
    workload: Workload
    limits: Limits = NO_LIMITS
    seed: int = 1


class RunFailed(Exception):  # noqa: N818 - not an error of this program
    """A task ended, or no step was reported in time; the message has the last output of all tasks."""


def start_process(
    command: Sequence[str], environment: Mapping[str, str], output: Path, hosts: Hosts, name: str
) -> Process:
    """Start a task (Python with `command`) on its host, with its output in a file; return its process.

    `name` is the task's. If this process ends, the task is killed.
    """
    with output.open("wb") as file:
        inside = [*hosts.inside(name), sys.executable, *command]
        return subprocess.Popen(inside, cwd=ROOT, env=environment, stdout=file, stderr=file)


class Run:
    """A context in which the tasks of a setup run, each on its own host.

    Each has its own folder below `folder`. Leaving the context kills the tasks.
    """

    def __init__(self, setup: Setup, folder: Path, data: Path, start: Start = start_process) -> None:
        self._workload, self._seed = setup.workload, setup.seed
        self._row = setup.row.with_ps(setup.workload.ps)
        self._folder, self._data, self._start = folder, data, start
        self._hosts = Hosts(self._row.tasks, setup.limits)
        self._processes: dict[str, Process] = {}

    def __enter__(self) -> "Run":
        """Start all tasks; return this object without waiting for their first step."""
        self._hosts.__enter__()
        try:
            for task in self._row.tasks:
                (self._folder / task).mkdir(parents=True)
                command, output = ["-m", self._row.module, *self._arguments(task)], self._output(task)
                self._processes[task] = self._start(
                    command, self._environment(task), output, self._hosts, task
                )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Kill all tasks, wait for their ends, and remove their networks."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._hosts.close()

    def measure(self, marks: Marks) -> Figures:
        """Wait for the marks and for the loss; return the figures of both. Raises RunFailed.

        It takes at least until the second mark, and at most `marks.longest` from the first step, if this is
        longer.
        """
        first = self._sample(0.0, 0, time.time() + marks.to_begin)
        deadline = first.wall + marks.warm_up + 4 * marks.between + 60
        straggler = self._processes[f"worker{self._row.workers - 1}"] if self._row.straggler else None
        with nullcontext() if straggler is None else slow_down(straggler, SLOWER):
            begin = self._sample(first.wall + marks.warm_up, 0, deadline)
            end = self._sample(begin.wall + marks.between, begin.global_step, deadline)
            found = self._wait_for_loss(first.wall + marks.longest)
        return {**figures(self._row, self._workload, begin, end), **figures_of_loss(found)}

    def _wait_for_loss(self, deadline: float) -> LossReached | None:
        """Wait until the loss is reached, or until `deadline` (Unix seconds); return when, or None.

        None means that it was not reached. Raises RunFailed if a task ends.
        """
        batch = self._row.batches * self._workload.batch_size
        while True:
            began = time.monotonic()
            found = when_reached(recorded_steps(self._folder), self._workload.loss, batch)
            if found is not None or time.time() >= deadline:
                return found
            self._raise_if_ended()
            # Long waits, because the tasks need the cores more.
            time.sleep(max(_SECONDS_BETWEEN_READINGS, 20 * (time.monotonic() - began)))

    def _sample(self, since: float, after: int, deadline: float) -> Sample:
        """Wait for the lead's first progress after step `after`, written at or after `since`.

        Return the readings at this moment. Raises RunFailed after `deadline`, and if a task ends. `since` and
        `deadline` are in Unix seconds.
        """
        lead = self._folder / self._row.tasks[-1] / "progress.json"
        while time.time() < deadline:
            progress = read_object(lead)
            if progress.get("global_step", 0) > after and progress["wall"] >= since:
                wall, global_step = progress["wall"], progress["global_step"]
                counters, busy = self._hosts.counters(), _busy_seconds()
                return Sample(wall, global_step, self._cpu(), counters, busy, self._memory())
            self._raise_if_ended()
            time.sleep(_POLL_SECONDS)
        raise RunFailed(f"no step was reported in time\n{self._outputs()}")

    def _raise_if_ended(self) -> None:
        ended = [task for task, process in self._processes.items() if process.poll() is not None]
        if ended:
            raise RunFailed(f"ended: {', '.join(ended)}\n{self._outputs()}")

    def _cpu(self) -> dict[str, dict[str, tuple[float, float]]]:
        return {task: _cpu_of(process.pid or 0) for task, process in self._processes.items()}

    def _memory(self) -> dict[str, int]:
        return {task: _most_memory(process.pid or 0) for task, process in self._processes.items()}

    def _arguments(self, task: str) -> list[str]:
        row, job, index = self._row, *split_name(task)
        place: dict[str, object] = {"job_name": "local"}
        if row.workers and not row.tf_config:
            hosts = {f"{name}_hosts": ",".join(of) for name, of in self._jobs().items()}
            place = {"job_name": job, "task_index": index, **hosts}
        run = {"run_id": "benchmark", "run_directory": self._folder / task, "data_dir": self._data}
        training = {"steps": _LAST_STEP, "seed": self._seed, "batch_size": self._workload.batch_size}
        flags = {**place, **run, **training, **self._workload.flags, **row.flags}
        return [f"--{name}={value_text(value)}" for name, value in flags.items() if value not in (None, "")]

    def _environment(self, task: str) -> dict[str, str]:
        """Return the environment variables of a task: few, and TF_CONFIG if the row has it.

        They have no proxies, through which TensorFlow would try to reach a ps.
        """
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
        added = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
        if self._row.tf_config:
            job, index = split_name(task)
            config = {"cluster": self._jobs(), "task": {"type": job, "index": index}}
            added["TF_CONFIG"] = json.dumps(config)
        return {**kept, **added}

    def _jobs(self) -> dict[str, list[str]]:
        jobs: dict[str, list[str]] = {}
        for task in sorted(self._hosts.addresses):
            jobs.setdefault(split_name(task)[0], []).append(self._hosts.addresses[task])
        return jobs

    def _output(self, task: str) -> Path:
        return self._folder / f"{task}.out"

    def _outputs(self) -> str:
        texts = {task: self._output(task).read_text(encoding="utf-8") for task in self._processes}
        return "\n".join(f"== {task}\n{text[-_SHOWN:]}" for task, text in texts.items())


@contextmanager
def slow_down(process: Process, times: int) -> Iterator[None]:
    """During the block, stop and continue a process so that it runs only for 1/`times` of the time."""
    over = Event()

    def stop_and_go() -> None:
        while not over.wait(_SECONDS_TO_RUN):
            process.send_signal(signal.SIGSTOP)
            over.wait(_SECONDS_TO_RUN * (times - 1))
            process.send_signal(signal.SIGCONT)

    thread = Thread(target=stop_and_go, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _cpu_of(pid: int) -> dict[str, tuple[float, float]]:
    """Return {name: CPU seconds so far (in user mode, in the kernel)} of the threads of a process.

    Threads of one name are added up. The key ENDED stands for all threads that have ended.
    """
    sums: dict[str, tuple[float, float]] = {}
    rest = _spent(Path(f"/proc/{pid}"))[1]
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # the thread has just ended
            name, (user, kernel) = _spent(thread)
            before = sums.get(name, (0.0, 0.0))
            sums[name] = (before[0] + user, before[1] + kernel)
            rest = (rest[0] - user, rest[1] - kernel)
    return {**sums, ENDED: rest}


def _spent(folder: Path) -> tuple[str, tuple[float, float]]:
    name, _, rest = (folder / "stat").read_text(encoding="utf-8").partition("(")[2].rpartition(")")
    values = rest.split()
    return name, (int(values[11]) / _TICKS, int(values[12]) / _TICKS)


def _most_memory(pid: int) -> int:
    """Return the largest number of bytes that a process has had in memory so far."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _busy_seconds() -> float:
    """Return the CPU seconds that all processes of this machine have used since its start."""
    user, nice, kernel, _idle, _io, interrupts, soft, *_ = map(
        int, Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:]
    )
    return (user + nice + kernel + interrupts + soft) / _TICKS
