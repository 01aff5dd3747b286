"""The tasks of a run: the plan's tasks, the run's own servers, and the role of each task."""

from dataclasses import dataclass
from typing import Literal

from .plan import JOBS, ClusterPlan, Job, PlannedTask
from .settings import TrainingSettings

SERVER: Literal["server"] = "server"
RunJob = Literal[Job, "server"]
# Clients need servers and ps, so they start last and end first.
Role = Literal["client", "server", "ps"]


@dataclass(frozen=True)
class RunTask:
    """One process of a run. A `server` has the index and the host of the worker that it serves.

    `address` is where the task listens ("10.89.0.11:2222"). It is "" for a worker whose server listens in its
    place, and for the only task of a local run, which does not listen.
    """

    job: RunJob
    index: int
    host: str
    role: Role = "client"
    address: str = ""

    @property
    def name(self) -> str:
        """The task's name, such as "worker0" or "server0"."""
        return f"{self.job}{self.index}"


def has_one_client(replication: str) -> bool:
    """Return True if worker 0 is the only client ("in_graph", "local"), False if every worker is a client.

    A *client* builds a graph and takes steps with it. In-graph, the other workers serve worker 0.
    """
    return replication in {"in_graph", "local"}


def run_tasks(plan: ClusterPlan, training: TrainingSettings, program: bool) -> tuple[RunTask, ...]:
    """Return the tasks of a run: ps, workers, chief, evaluator, and the run's own servers, each by index.

    A local run has only worker 0. With `existing_servers`, each client gets a server. The plan's chief and
    evaluator run only with a program. With `program` (True: the run executes one), the settings do not count:
    all tasks of the plan run, the clients are the chief and the evaluator if the plan has a chief, and there
    are no own servers.
    """
    ps, workers, chief, evaluators = (plan.tasks_of(job) for job in JOBS)
    clients: tuple[PlannedTask, ...] = (*(chief or workers), *evaluators)
    served: tuple[PlannedTask, ...] = ()
    if not program:
        if training.replication == "local":
            return (RunTask("worker", 0, workers[0].host),)
        # With one client, the other workers serve anyway, so only the client needs a server.
        clients = workers[:1] if has_one_client(training.replication) else workers
        served = clients if training.existing_servers else ()
        chief = evaluators = ()

    def task(planned: PlannedTask) -> RunTask:
        role: Role = "ps" if planned.job == "ps" else "client" if planned in clients else "server"
        address = "" if planned in served else planned.target
        return RunTask(planned.job, planned.index, planned.host, role, address)

    servers = (RunTask(SERVER, worker.index, worker.host, "server", worker.target) for worker in served)
    return (*map(task, (*ps, *workers, *chief, *evaluators)), *servers)
