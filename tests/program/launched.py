"""Tasks of a program of one's own, launched as by systemd, on loopback; a folder each, as on hosts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.trainer.processes import ROOT, free_ports
from trainer.records import Record, events_file, read_records

RUN_ID = "20260101-test"
PLAN_HASH = "0a1b2c3d4e5f"


class Tasks:
    """The tasks of a run of one program. Leaving its context kills those that are left."""

    def __init__(self, folder: Path, program: Path, **jobs: int) -> None:
        """Choose free ports for so many tasks of each job; nothing is started yet."""
        self.folder, self.program = folder, program
        ports = iter(free_ports(sum(jobs.values())))
        self.cluster = {
            job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in jobs.items() if count
        }
        self.arguments: Sequence[str] = ()
        self.flags = True
        self.environment: dict[str, str] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Tasks:
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
            "flags": self.flags,
        }
        description = self.folder / "program.json"
        description.write_text(json.dumps(content))
        for name in names or self.names:
            job, index = name.rstrip("0123456789"), name.lstrip("abcdefghijklmnopqrstuvwxyz")
            directory = self.directory(name)
            directory.mkdir(parents=True, exist_ok=True)
            tf_config = {"cluster": self.cluster, "task": {"type": job, "index": int(index)}}
            environment = {
                **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
                "TF_CONFIG": json.dumps(tf_config),
                "PSFLEET_PLAN_HASH": PLAN_HASH,
                "PSFLEET_RELEASE": "beef",
                "CUDA_VISIBLE_DEVICES": "",
                **self.environment,
            }
            command = [sys.executable, "-m", "trainer", f"--job_name={job}", f"--task_index={index}"]
            command += [
                f"--{hosts}_hosts={','.join(self.cluster.get(hosts, []))}" for hosts in ("ps", "worker")
            ]
            command += [f"--run_id={RUN_ID}", f"--run_directory={directory}", f"--program={description}"]
            with (self.folder / f"{name}.out").open("ab") as output:
                self.processes[name] = subprocess.Popen(
                    [*command, *options], cwd=ROOT, env=environment, stdout=output, stderr=output
                )

    def wait(self, *names: str, seconds: float = 120) -> dict[str, int]:
        """Task -> exit code, once they have ended, all where none is named."""
        deadline = time.monotonic() + seconds
        codes = {}
        for name in names or self.processes:
            while (code := self.processes[name].poll()) is None:
                assert time.monotonic() < deadline, f"{name} is still running\n{self.outputs()}"
                time.sleep(0.05)
            codes[name] = code
        return codes

    def stop(self, *names: str) -> dict[str, int]:
        """Task -> exit code, of those ended by SIGTERM, as train.yml ends what still serves."""
        for name in names:
            self.processes[name].send_signal(signal.SIGTERM)
        return self.wait(*names, seconds=40)

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
        """Wait for a condition; fail with everything the tasks printed when it does not come."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"waited for: {what}\n{self.outputs()}"
            time.sleep(0.05)

    def directory(self, name: str) -> Path:
        """The run directory of a task, as on the disk of its own host."""
        return self.folder / name

    def output(self, name: str) -> str:
        """What the launcher and the program printed."""
        path = self.folder / f"{name}.out"
        return path.read_text() if path.exists() else ""

    def outputs(self) -> str:
        """What all printed."""
        return "\n".join(f"== {name}\n{self.output(name)}" for name in self.names)

    def progress(self, name: str) -> Mapping[str, object]:
        """What the task's progress.json holds; empty where there is none."""
        path = self.directory(name) / "progress.json"
        content: dict[str, object] = json.loads(path.read_text()) if path.exists() else {}
        return content

    def records(self, name: str, event: str = "") -> list[Record]:
        """The task's records, of one event where it is named."""
        job, index = name.rstrip("0123456789"), name.lstrip("abcdefghijklmnopqrstuvwxyz")
        path = events_file(self.directory(name), job, int(index))
        if not path.exists():
            return []
        records, complaints = read_records(path)
        assert complaints == [], complaints
        return [record for record in records if event in {"", record.event}]


def alive(pid: int) -> bool:
    """Whether a process of this number is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
