"""Tasks of a user's program, launched as by systemd, on loopback; a folder each, as on hosts."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests.repository import ROOT
from tests.trainer.ports import free_ports
from tests.trainer.processes import Processes
from trainer.contract.exit_codes import FINISHED
from trainer.contract.task_names import split_name
from trainer.program.launcher import LIBRARY, OBSERVED, TENSORFLOW1

FORKED_TASKS = Path(__file__).with_name("forked_tasks.py")
AS_ON_HOSTS = Path(__file__).with_name("as_on_hosts")
RUN_ID = "20260101-test"
PLAN_HASH = "0a1b2c3d4e5f"
# As of systemd on a host whose packages come through a proxy: through this one, no task meets another.
DEAD_PROXY = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}


class Tasks(Processes[subprocess.Popen[bytes]]):
    """The tasks of a run of one program. Leaving its context kills those that are left."""

    def __init__(self, folder: Path, program: Path, **jobs: int) -> None:
        """Choose free ports for so many tasks of each job; nothing is started yet."""
        super().__init__(folder)
        self.program = program
        ports = iter(free_ports(sum(jobs.values())))
        self.cluster = {
            job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items() if count
        }
        self.before: Sequence[str] = ()
        self.arguments: Sequence[str] = ()
        self.flags = self.observed = True
        self.tensorflow1 = False
        self.end_deadline_minutes = 60.0

    def __enter__(self) -> "Tasks":
        """Return the tasks."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End what is left; the launcher ends its program."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(30)  # the launcher kills a program that stays longer than 20 s

    @property
    def names(self) -> list[str]:
        """The name of each task."""
        return [f"{job}{index}" for job, hosts in self.cluster.items() for index in range(len(hosts))]

    def start(self, *names: str, options: Sequence[str] = ()) -> None:
        """Launch tasks, all where none is named, each in a folder of its own."""
        content = {
            "release": "c0ffee",
            "file": str(self.program),
            "arguments": list(self.arguments),
            "environment": {"MIXED_CASE_of_mine": "two words", "TF_CPP_MIN_LOG_LEVEL": "0"},
            "flags": self.flags,
            "observed": self.observed,
            "tensorflow1": self.tensorflow1,
            "end_deadline_minutes": self.end_deadline_minutes,
        }
        description = self.folder / "program.json"
        description.write_text(json.dumps(content))
        for name in names or self.names:
            job, index = split_name(name)
            directory = self.directory(name)
            directory.mkdir(parents=True, exist_ok=True)
            tf_config = {"cluster": self.cluster, "task": {"type": job, "index": index}}
            environment = {
                **os.environ,
                "PYTHONPATH": str(AS_ON_HOSTS),
                "TF_CONFIG": json.dumps(tf_config),
                "PSFLEET_PLAN_HASH": PLAN_HASH,
                "PSFLEET_RELEASE": "beef",
                "CUDA_VISIBLE_DEVICES": "",
                **DEAD_PROXY,
                **self.environment,
            }
            command = [*self.before, sys.executable, "-m", "trainer"]
            command += [f"--job_name={job}", f"--task_index={index}"]
            command += [
                f"--{hosts}_hosts={','.join(self.cluster.get(hosts, []))}" for hosts in ("ps", "worker")
            ]
            command += [f"--run_id={RUN_ID}", f"--run_directory={directory}", f"--program={description}"]
            with self.output_file(name).open("ab") as output:
                self.processes[name] = subprocess.Popen(
                    [*command, *options], cwd=ROOT, env=environment, stdout=output, stderr=output
                )

    def run_forked(self) -> dict[str, int]:
        """Run all tasks without the launcher, as forks of one process: TensorFlow is loaded once for all.

        Return the exit codes. A ps is ended as train.yml does, once all workers have ended.
        """
        path = [TENSORFLOW1] if self.tensorflow1 else []
        path += [OBSERVED] if self.observed else []
        environment = {
            "CUDA_VISIBLE_DEVICES": "",
            "PSFLEET_PLAN_HASH": PLAN_HASH,
            "PSFLEET_PROGRAM_RELEASE": "c0ffee",
            "PSFLEET_RELEASE": "beef",
            "PSFLEET_RUN_DIRECTORY": str(self.folder),  # with it the observer begins; each task has its own
            "PSFLEET_RUN_ID": RUN_ID,
            "PYTHONPATH": os.pathsep.join(map(str, [*path, LIBRARY, AS_ON_HOSTS, ROOT])),
            "PYTHONUNBUFFERED": "1",
            "TF_CONFIG": json.dumps({"cluster": self.cluster, "task": {"type": "worker", "index": 0}}),
        }
        asked, codes = self.folder / "forks.json", self.folder / "codes.json"
        asked.write_text(json.dumps([self._fork(name) for name in self.names]))
        done = subprocess.run(
            [sys.executable, FORKED_TASKS, asked, codes],
            env=os.environ | environment | self.environment,
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        assert done.returncode == 0, done.stderr + "".join(map(self.output, self.names))
        ended: dict[str, int] = json.loads(codes.read_text())
        return ended

    def _fork(self, name: str) -> dict[str, object]:
        """Return a task as forked_tasks.py takes it."""
        job, index = split_name(name)
        directory = self.directory(name)
        directory.mkdir()
        flags = [f"--job_name={job}", f"--task_index={index}"]
        flags += [f"--{hosts}_hosts={','.join(addresses)}" for hosts, addresses in self.cluster.items()]
        own = {"JOB": job, "TASK_INDEX": str(index), "RUN_DIRECTORY": str(directory)}
        return {
            "name": name,
            "command": [str(self.program), *flags, *self.arguments],
            "environment": {f"PSFLEET_{variable}": value for variable, value in own.items()},
            "directory": str(directory),
            "output": str(self.output_file(name)),
            "serves": job == "ps",
        }

    def stop(self, *names: str) -> dict[str, int]:
        """Task -> exit code, of those ended by SIGTERM, as train.yml ends what still serves."""
        for name in names:
            self.processes[name].send_signal(signal.SIGTERM)
        return self.wait(*names)


def program(folder: Path, text: str, name: str = "main.py") -> Path:
    """Write a program below `folder`, and return its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def run_alone(folder: Path, text: str, code: int = FINISHED, *options: str, **environment: str) -> Tasks:
    """Worker 0 of a run that has no other task; it has ended, with this code."""
    with Tasks(folder, program(folder, text), worker=1) as tasks:
        tasks.environment = environment
        tasks.start(options=options)
        assert tasks.wait() == {"worker0": code}, tasks.outputs()
        return tasks


def alive(pid: int) -> bool:
    """Whether a process of this number is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
