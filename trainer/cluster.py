"""The cluster as a task's command line describes it: who listens where, and which task this is."""

from __future__ import annotations

import re
from dataclasses import dataclass

JOBS = ("ps", "worker")
CHIEF = "worker0"
# The job of a coordinator, which only a program of one's own has.
PROGRAM_CHIEF = "chief"
_HIGHEST_PORT = 65535
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:,\[\]]+):([0-9]+)")


@dataclass(frozen=True)
class Cluster:
    """The ordered addresses (`host:port`) of both jobs and this task's place among them."""

    job: str
    index: int
    ps_hosts: tuple[str, ...]
    worker_hosts: tuple[str, ...]
    plan_hash: str = ""
    release: str = ""

    @property
    def task(self) -> str:
        """The task's name as in `worker0`."""
        return f"{self.job}{self.index}"

    @property
    def is_chief(self) -> bool:
        """Whether this is worker 0, which initialises, saves and ends the run."""
        return self.task == CHIEF

    @property
    def jobs(self) -> dict[str, list[str]]:
        """The cluster as `tf.train.ClusterSpec` takes it."""
        return {"ps": list(self.ps_hosts), "worker": list(self.worker_hosts)}

    @property
    def addresses(self) -> dict[str, str]:
        """Task name -> address, the ps first."""
        return {f"{job}{index}": host for job, hosts in self.jobs.items() for index, host in enumerate(hosts)}

    @property
    def device(self) -> str:
        """The device of this task, as TensorFlow writes it."""
        return f"/job:{self.job}/task:{self.index}"

    @property
    def ps_devices(self) -> tuple[str, ...]:
        """The device of each ps."""
        return tuple(f"/job:ps/task:{ps}" for ps in range(len(self.ps_hosts)))

    @property
    def device_filters(self) -> list[str]:
        """The tasks that a session of this one waits for and uses; TensorFlow waits for them for ever."""
        return [self.device] if self.job == "ps" else ["/job:ps", self.device]

    @property
    def description(self) -> dict[str, str]:
        """What every task of a cluster must have alike, for comparison."""
        return {
            "ps_hosts": ",".join(self.ps_hosts),
            "worker_hosts": ",".join(self.worker_hosts),
            "PSFLEET_PLAN_HASH": self.plan_hash,
            "PSFLEET_RELEASE": self.release,
        }

    def problems(self, *, program: bool = False) -> list[str]:
        """Everything that is wrong with the command line, each naming the flag, the value and the remedy.

        A user's own `program` may do without ps, and may have a chief, whose address no flag holds.
        """
        problems = []
        for flag, hosts in (("--ps_hosts", self.ps_hosts), ("--worker_hosts", self.worker_hosts)):
            if not hosts and not (program and flag == "--ps_hosts"):
                problems.append(f"{flag} is empty, expected host:port,host:port,...")
            problems += [
                f"{flag} has {host!r}, expected host:port" for host in hosts if not _is_address(host)
            ]
        every = self.ps_hosts + self.worker_hosts
        problems += [
            f"{address!r} is there twice: each task needs its own host:port"
            for address in sorted({address for address in every if every.count(address) > 1})
        ]
        jobs = (*JOBS, PROGRAM_CHIEF) if program else JOBS
        if self.job not in jobs:
            return [*problems, f"--job_name is {self.job!r}, expected {' or '.join(jobs)}"]
        if self.job == PROGRAM_CHIEF:
            wrong = f"--task_index is {self.index}, expected 0: there is one chief"
            return [*problems, wrong] if self.index else problems
        count = len(self.jobs[self.job])
        if not 0 <= self.index < count:
            problems.append(
                f"--task_index is {self.index}, expected 0 to {count - 1}, for --{self.job}_hosts has {count}"
            )
        return problems


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port`; an IPv6 address stands in brackets. Raises ValueError."""
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match[2]) <= _HIGHEST_PORT:
        raise ValueError(address)
    return match[1].strip("[]"), int(match[2])


def _is_address(address: str) -> bool:
    try:
        split_address(address)
    except ValueError:
        return False
    return True
