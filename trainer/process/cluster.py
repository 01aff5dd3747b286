"""The cluster as a task's command line describes it: the addresses of all tasks, and which task this is."""

import re
from contextlib import suppress
from dataclasses import dataclass

from trainer.contract.run_tasks import has_one_client
from trainer.contract.task_names import CHIEF, EVALUATOR, split_name

# The jobs of a built-in model's tasks. A server serves at the address of the worker with its index.
JOBS = ("ps", "worker", "server")
# The value of --job_name for a run in a single process.
LOCAL = "local"
# The job of a coordinator, which only a program can have.
PROGRAM_CHIEF = "chief"
# The jobs of which a program has at most one task, whose address is in no flag.
SINGLE_JOBS = (PROGRAM_CHIEF, EVALUATOR)
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:,\[\]]+):([0-9]+)")


@dataclass(frozen=True)
class Cluster:
    """The tasks of a run, as a task's command line describes them, and which of them this process is.

    A *client* builds a graph and takes steps with it; the other tasks *serve*. The run's `replication` and
    `existing_servers` decide which task is a client. A client opens sessions to tasks that serve and to its
    own server, never to another client.

    Attributes:
        job: this task's job: "ps", "worker", "server", or of a program "chief" or "evaluator".
        index: this task's index.
        ps_hosts: the address ("host:port") of each ps, in the order of the indices.
        worker_hosts: the same of each worker.
        plan_hash: the plan's hash; "" if the task was started by hand.
        release: the trainer's release; "" if the task was started by hand.
        replication: the training setting.
        existing_servers: the training setting.
        absent: the indices of workers that were missing when the run began, and may join it later.

    """

    job: str
    index: int
    ps_hosts: tuple[str, ...]
    worker_hosts: tuple[str, ...]
    plan_hash: str = ""
    release: str = ""
    replication: str = "async"
    existing_servers: bool = False
    absent: tuple[int, ...] = ()

    @property
    def task(self) -> str:
        """The task's name, such as "worker0"."""
        return f"{self.job}{self.index}"

    @property
    def is_chief(self) -> bool:
        """Whether this is worker 0, the chief of built-in models; False for a program's `chief0`."""
        return self.task == CHIEF

    @property
    def jobs(self) -> dict[str, list[str]]:
        """The cluster as `tf.train.ClusterSpec` takes it: {"ps": addresses, "worker": addresses}."""
        return {"ps": list(self.ps_hosts), "worker": list(self.worker_hosts)}

    @property
    def is_local(self) -> bool:
        """Whether the whole run is this one process (replication "local")."""
        return self.replication == LOCAL

    @property
    def serves(self) -> bool:
        """Whether this task serves: every ps and server does, and in-graph every worker but worker 0.

        A task that serves takes no steps itself, but has a part in the graph of a client.
        """
        return self.job != "worker" or self.index not in self.clients

    @property
    def workers(self) -> int:
        """The number of workers that train, with those absent; 1 in a local run."""
        return 1 if self.is_local else len(self.worker_hosts)

    @property
    def clients(self) -> tuple[int, ...]:
        """The indices of the workers that are clients: (0,) in-graph and in a local run, else all."""
        return (0,) if has_one_client(self.replication) else tuple(range(self.workers))

    @property
    def listeners(self) -> dict[str, str]:
        """{task: address} of the tasks that listen: the ps, then the workers, by index; {} in a local run.

        With `existing_servers`, a client does not listen; its server is there in its place.
        """
        if self.is_local:
            return {}
        tasks = {f"ps{ps}": address for ps, address in enumerate(self.ps_hosts)}
        workers = {self.listener_of(worker): address for worker, address in enumerate(self.worker_hosts)}
        return {**tasks, **workers}

    def listener_of(self, worker: int) -> str:
        """Return the name of the task that listens at the address of worker number `worker`.

        For 1 it is "server1" if worker 1 is a client and the run has `existing_servers`, else "worker1".
        """
        has_server = self.existing_servers and worker in self.clients
        return f"{'server' if has_server else 'worker'}{worker}"

    @property
    def address(self) -> str:
        """The "host:port" at which this task, or its server, listens; "" in a local run without addresses."""
        return self.address_of(self.task)

    def address_of(self, task: str) -> str:
        """Return the "host:port" of a ps, worker or server by its name; "" if its index is too high.

        A server has the address of the worker with its index.
        """
        job, index = split_name(task)
        hosts = self.ps_hosts if job == "ps" else self.worker_hosts
        return hosts[index] if index < len(hosts) else ""

    def keepers(self, copies: int, saver: str = CHIEF) -> tuple[str, ...]:
        """Return the names of the tasks that keep copies of what the task `saver` saves.

        These are up to `copies` - 1 tasks, because the saved original counts: one task on each host other
        than the saver's, a ps if that host has one. If fewer other hosts exist, the list is shorter; () in a
        local run. If several ps save, their lists begin with different hosts.

        Example: with the hosts A (ps0, worker0), B (ps1) and C (worker1), keepers(3) -> ("ps1", "worker1")
        """
        tasks: dict[str, str] = {}
        for task, address in self.listeners.items():
            tasks.setdefault(address.rpartition(":")[0], task)
        tasks.pop(self.address_of(saver).rpartition(":")[0], None)
        others, (job, index) = tuple(tasks.values()), split_name(saver)
        first = index % len(others) if others and job == "ps" else 0
        return (*others[first:], *others[:first])[: copies - 1]

    def device_of(self, listener: str) -> str:
        """Return the device of a ps, worker or server by its name, such as "/job:ps/task:0" for "ps0".

        A server has the device of the worker with its index.
        """
        job, index = split_name(listener)
        return f"/job:ps/task:{index}" if job == "ps" else worker_device(index)

    @property
    def listeners_on_host(self) -> int:
        """How many tasks listen on this task's host, itself included; at least 1.

        Tasks with an equal host in their addresses are on one host.
        """
        host = self.address.rpartition(":")[0]
        return sum(address.rpartition(":")[0] == host for address in self.listeners.values()) or 1

    @property
    def serving_tasks(self) -> dict[str, str]:
        """{task: device} of the tasks, other than the ps, that serve this client; {} if there are none.

        In-graph these are the other workers, by index; with `existing_servers` then this client's own server.
        """
        tasks = {}
        if self.replication == "in_graph":
            tasks = {f"worker{index}": worker_device(index) for index in range(1, self.workers)}
        if self.existing_servers:
            tasks[f"server{self.index}"] = self.device
        return tasks

    @property
    def device(self) -> str:
        """The device of this task, such as "/job:worker/task:0"; a server has its worker's device.

        In a local run "/job:localhost/task:0".
        """
        if self.is_local:
            return "/job:localhost/task:0"  # as TensorFlow names the job of a local server
        return self.device_of(self.task)

    @property
    def ps_devices(self) -> tuple[str, ...]:
        """The devices of the ps by index, such as ("/job:ps/task:0",); () in a local run."""
        return () if self.is_local else tuple(f"/job:ps/task:{ps}" for ps in range(len(self.ps_hosts)))

    @property
    def ledger_devices(self) -> tuple[str, ...]:
        """The devices that hold the run's ledger: of all ps, or in a local run of this process.

        The ledger is the small variables by which the tasks count steps and tell each other their state.
        """
        return self.ps_devices or (self.device,)

    def filters(self, *devices: str) -> list[str]:
        """Return the device filters for a session that uses these devices: the devices; [] in a local run.

        TensorFlow waits for ever for every task that a session's filters let through; [] lets all through.
        """
        return [] if self.is_local else list(devices)

    @property
    def filters_to_train(self) -> list[str]:
        """The device filters of a client's training session: all ps and this client's own device.

        In-graph, all workers in place of the own device; [] (no filter) in a local run.
        """
        return self.filters("/job:ps", "/job:worker" if self.replication == "in_graph" else self.device)

    @property
    def description(self) -> dict[str, str]:
        """{name: text} of what must be equal in all tasks: ps_hosts, worker_hosts, plan hash and release."""
        return {
            "ps_hosts": ",".join(self.ps_hosts),
            "worker_hosts": ",".join(self.worker_hosts),
            "PSFLEET_PLAN_HASH": self.plan_hash,
            "PSFLEET_RELEASE": self.release,
        }

    def problems(self, *, program: bool = False) -> list[str]:
        """Return everything that is wrong with the command line, in words; [] if nothing is.

        Each problem names the flag, the value and what is expected. With `program`, a user's program runs: it
        may have no ps, and its job may be one of SINGLE_JOBS, whose addresses are in no flag.
        """
        if self.is_local and self.job != "worker":
            alone = "with --replication=local one process is the whole run"
            return [f"--job_name is {self.job!r}, expected local, or worker: {alone}"]
        if self.is_local:
            wrong = f"--task_index is {self.index}, expected 0: with --replication=local there is one task"
            return [wrong] if self.index else []
        problems = []
        for flag, hosts in (("--ps_hosts", self.ps_hosts), ("--worker_hosts", self.worker_hosts)):
            if not hosts and not (program and flag == "--ps_hosts"):
                problems.append(f"{flag} is empty, expected host:port,host:port,...")
            bad = [host for host in hosts if not _is_address(host)]
            problems += [f"{flag} has {host!r}, expected host:port" for host in bad]
        every = self.ps_hosts + self.worker_hosts
        twice = sorted({address for address in every if every.count(address) > 1})
        problems += [f"{address!r} is there twice: each task needs its own host:port" for address in twice]
        jobs = ("ps", "worker", *SINGLE_JOBS) if program else (*JOBS, LOCAL)
        if self.job not in jobs:
            return [*problems, f"--job_name is {self.job!r}, expected {' or '.join(jobs)}"]
        if self.job in SINGLE_JOBS:
            wrong = f"--task_index is {self.index}, expected 0: there is one {self.job}"
            return [*problems, wrong] if self.index else problems
        flag = "ps" if self.job == "ps" else "worker"
        count = len(self.jobs[flag])
        if not 0 <= self.index < count:
            expected = f"expected 0 to {count - 1}, for --{flag}_hosts has {count}"
            problems.append(f"--task_index is {self.index}, {expected}")
        return problems


def worker_device(index: int) -> str:
    """Return the device of worker number `index`, such as "/job:worker/task:1" for 1."""
    return f"/job:worker/task:{index}"


def split_address(address: str) -> tuple[str, int]:
    """Return (host, port) of "host:port".

    An IPv6 address must be in brackets, which the result lacks. Raises ValueError for other texts, and for a
    port that is not from 1 to 65535.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match[2]) <= 65535:
        raise ValueError(address)
    return match[1].strip("[]"), int(match[2])


def _is_address(address: str) -> bool:
    with suppress(ValueError):
        return bool(split_address(address))
    return False
