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
from typing import Any, Protocol

from benchmarks.data import ROOT
from benchmarks.network import Hosts
from benchmarks.rows import SLOWER, Row, Workload
from trainer.contract.json_files import read_object
from trainer.contract.settings import flags_of
from trainer.contract.task_names import split_name

_SECONDS_TO_BEGIN = 180.0
_POLL_SECONDS = 0.02
_SECONDS_TO_RUN = 0.02
_LAST_STEP = 100_000_000
_TICKS = os.sysconf("SC_CLK_TCK")
_SHOWN = 1500
# Threads that spend less than this on a step, in milliseconds, are left out.
_LEAST_SHOWN = 0.01
ENDED = "threads that ended"
Figures = dict[str, Any]


class Process(Protocol):
    """A started process."""

    @property
    def pid(self) -> int | None: ...  # noqa: D102

    def poll(self) -> int | None: ...  # noqa: D102
    def send_signal(self, number: signal.Signals) -> None: ...  # noqa: D102
    def kill(self) -> None: ...  # noqa: D102
    def wait(self) -> object: ...  # noqa: D102


# Starts a process, given its command, environment, output file, and network with the name in it.
Start = Callable[[Sequence[str], Mapping[str, str], Path, Hosts, str], Process]


class RunFailed(Exception):  # noqa: N818 - not an error of this program
    """A run that did not reach its end mark; the message has the last output of its tasks."""


@dataclass(frozen=True)
class Sample:
    """The readings at a mark: Unix seconds and global step of the run, and figures of the kernel.

    `cpu` is task -> name of threads -> seconds in user mode and in the kernel. `bytes` are host -> bytes.
    `busy` is the CPU seconds of the whole machine.
    """

    wall: float
    global_step: int
    cpu: Mapping[str, Mapping[str, tuple[float, float]]]
    bytes: Mapping[str, int]
    busy: float


def start_process(
    command: Sequence[str], environment: Mapping[str, str], output: Path, hosts: Hosts, name: str
) -> Process:
    """Start a task in its network; the task ends with this process."""
    with output.open("wb") as file:
        inside = [*hosts.inside(name), sys.executable, *command]
        return subprocess.Popen(inside, cwd=ROOT, env=environment, stdout=file, stderr=file)


class Run:
    """The tasks of a row that train a workload, each in its own network and folder.

    Leaving the context ends them.
    """

    def __init__(
        self, row: Row, workload: Workload, folder: Path, data: Path, start: Start = start_process
    ) -> None:
        self._row, self._workload, self._folder, self._data = row, workload, folder, data
        self._start = start
        self._hosts = Hosts(row.tasks)
        self._processes: dict[str, Process] = {}

    def __enter__(self) -> "Run":
        """Start all tasks."""
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
        """End all tasks at once, and their networks."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._hosts.close()

    def measure(self, warm_up: float, seconds: float) -> Figures:
        """Return the figures for `seconds`, from a mark `warm_up` seconds after the first step on.

        Raises RunFailed.
        """
        began = time.time()
        first = self._sample(0.0, 0, began + _SECONDS_TO_BEGIN)
        deadline = first.wall + warm_up + 4 * seconds + 60
        straggler = self._processes[f"worker{self._row.workers - 1}"] if self._row.straggler else None
        with nullcontext() if straggler is None else slowed(straggler, SLOWER):
            begin = self._sample(first.wall + warm_up, 0, deadline)
            end = self._sample(begin.wall + seconds, begin.global_step, deadline)
        return figures(self._row, self._workload, begin, end)

    def _sample(self, since: float, after: int, deadline: float) -> Sample:
        """Return the sample at the first progress beyond step `after` that is written from `since` on."""
        lead = self._folder / self._row.tasks[-1] / "progress.json"
        while time.time() < deadline:
            progress = read_object(lead)
            if progress.get("global_step", 0) > after and progress["wall"] >= since:
                wall, global_step = progress["wall"], progress["global_step"]
                return Sample(wall, global_step, self._cpu(), self._hosts.counters(), _busy_seconds())
            ended = [task for task, process in self._processes.items() if process.poll() is not None]
            if ended:
                raise RunFailed(f"ended: {', '.join(ended)}\n{self._outputs()}")
            time.sleep(_POLL_SECONDS)
        raise RunFailed(f"no step was reported in time\n{self._outputs()}")

    def _cpu(self) -> dict[str, dict[str, tuple[float, float]]]:
        return {task: _cpu_of(process.pid or 0) for task, process in self._processes.items()}

    def _arguments(self, task: str) -> list[str]:
        row, job, index = self._row, *split_name(task)
        place: dict[str, object] = {"job_name": "local"}
        if row.workers and not row.coordinator:
            hosts = {f"{name}_hosts": ",".join(of) for name, of in self._jobs().items()}
            place = {"job_name": job, "task_index": index, **hosts}
        run = {"run_id": "benchmark", "run_directory": self._folder / task, "data_dir": self._data}
        training = {"steps": _LAST_STEP, "batch_size": self._workload.batch_size, "optimizer": "adam"}
        return flags_of({**place, **run, **training, **self._workload.flags, **row.flags})

    def _environment(self, task: str) -> dict[str, str]:
        """Return a small environment, without proxies, which TensorFlow would use to reach a ps."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
        given = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
        if self._row.coordinator:
            job, index = split_name(task)
            config = {"cluster": self._jobs(), "task": {"type": job, "index": index}}
            given["TF_CONFIG"] = json.dumps(config)
        return {**kept, **given}

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
def slowed(process: Process, times: int) -> Iterator[None]:
    """Let a process run for only 1/`times` of the time, like one on a slower machine."""
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


def figures(row: Row, workload: Workload, begin: Sample, end: Sample) -> Figures:
    """Return the figures between two marks; docs/performance.md explains each one."""
    seconds, steps = end.wall - begin.wall, end.global_step - begin.global_step
    batches = steps * row.gradients
    cpu = _cpu_between(begin, end)
    of_all = sum(user + kernel for user, kernel in cpu.values())
    moved = {host: end.bytes[host] - count for host, count in begin.bytes.items()}
    of_workers = sum(count for host, count in moved.items() if host.startswith("worker"))
    of_ps = [count for host, count in moved.items() if host.startswith("ps")]
    wire = {}
    if row.workers:
        a_step = of_workers / batches
        wire = {
            "bytes_per_worker_and_step": a_step,
            "bytes_of_twice_the_parameters": a_step / (2 * workload.parameter_bytes),
            "largest_ps_of_mean": max(of_ps) * len(of_ps) / sum(of_ps),
        }
    return {
        "seconds": seconds,
        "steps": steps,
        "steps_per_second": steps / seconds,
        "examples_per_second": batches * workload.batch_size / seconds,
        "cpu_seconds_per_1000_examples": 1000 * of_all / (batches * workload.batch_size),
        **wire,
        "cores_of_others": (end.busy - begin.busy - of_all) / seconds,
        "cpu_milliseconds_per_step": {
            name: [round(1000 * part / steps, 3) for part in parts]
            for name, parts in sorted(cpu.items())
            if 1000 * sum(parts) / steps >= _LEAST_SHOWN
        },
    }


def _cpu_between(begin: Sample, end: Sample) -> dict[str, tuple[float, float]]:
    """Return "job threads" -> seconds in user mode and in the kernel, over all tasks of the job."""
    sums: dict[str, list[float]] = {}
    for task, threads in end.cpu.items():
        for name, spent in threads.items():
            before = begin.cpu[task].get(name, (0.0, 0.0))
            sum_ = sums.setdefault(f"{split_name(task)[0]}: {name}", [0.0, 0.0])
            for mode in (0, 1):
                sum_[mode] += spent[mode] - before[mode]
    return {name: (spent[0], spent[1]) for name, spent in sums.items()}


def _cpu_of(pid: int) -> dict[str, tuple[float, float]]:
    """Return name -> seconds in user mode and in the kernel of its threads; ENDED has those of ended ones."""
    sums: dict[str, tuple[float, float]] = {}
    rest = _spent(Path(f"/proc/{pid}"))[1]
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has just ended
            name, (user, kernel) = _spent(thread)
            before = sums.get(name, (0.0, 0.0))
            sums[name] = (before[0] + user, before[1] + kernel)
            rest = (rest[0] - user, rest[1] - kernel)
    return {**sums, ENDED: rest}


def _spent(folder: Path) -> tuple[str, tuple[float, float]]:
    name, _, rest = (folder / "stat").read_text(encoding="utf-8").partition("(")[2].rpartition(")")
    values = rest.split()
    return name, (int(values[11]) / _TICKS, int(values[12]) / _TICKS)


def _busy_seconds() -> float:
    """Return the CPU seconds that all processes of this machine have spent."""
    user, nice, kernel, _idle, _io, interrupts, soft, *_ = map(
        int, Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:]
    )
    return (user + nice + kernel + interrupts + soft) / _TICKS
