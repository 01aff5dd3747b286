"""Which tasks of the plan a run has, which servers of its own, and what they are to each other."""

from dataclasses import dataclass
from typing import Literal

from .plan import ClusterPlan, Job, PlannedTask
from .settings import TrainingSettings

SERVER: Literal["server"] = "server"
RunJob = Literal[Job, "server"]
# Clients compute with what servers and ps hold: they start last and end first.
Role = Literal["client", "server", "ps"]


@dataclass(frozen=True)
class RunTask:
    """One process of a run. A `server` has the index of the worker that it serves, and that worker's host.

    `address` is where it listens ("10.89.0.11:2222"), empty where another task listens for it, or none.
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
    """Whether worker 0 alone takes steps; workers beside it, if any, serve it. Else each is a client."""
    return replication in {"in_graph", "local"}


def run_tasks(plan: ClusterPlan, training: TrainingSettings, program: bool) -> tuple[RunTask, ...]:
    """Return the tasks of a run in the plan's order, then its servers.

    `program`: whether the user's own program runs. It gets all tasks of the plan, for psfleet cannot know
    what it does with them.
    """
    ps, workers, chief = (plan.tasks_of(job) for job in ("ps", "worker", "chief"))
    clients: tuple[PlannedTask, ...] = chief or workers
    served: tuple[PlannedTask, ...] = ()
    if not program:
        if training.replication == "local":
            return (RunTask("worker", 0, workers[0].host),)
        # The workers of a graph that one client builds serve already, all but the client.
        clients = workers[:1] if has_one_client(training.replication) else workers
        served = clients if training.existing_servers else ()
        chief = ()

    def task(planned: PlannedTask) -> RunTask:
        role: Role = "ps" if planned.job == "ps" else "client" if planned in clients else "server"
        address = "" if planned in served else planned.target
        return RunTask(planned.job, planned.index, planned.host, role, address)

    servers = (RunTask(SERVER, worker.index, worker.host, "server", worker.target) for worker in served)
    return (*map(task, (*ps, *workers, *chief)), *servers)
