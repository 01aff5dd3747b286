"""Which tasks of the plan a run has, and which servers of its own, by its replication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainer.plan import ClusterPlan, Job
from trainer.settings import TrainingSettings

SERVER: Literal["server"] = "server"
RunJob = Literal[Job, "server"]


@dataclass(frozen=True)
class RunTask:
    """One process of a run. A `server` has the index of the worker that it serves, and that worker's host."""

    job: RunJob
    index: int
    host: str

    @property
    def name(self) -> str:
        """The task's name, such as "worker0" or "server0"."""
        return f"{self.job}{self.index}"


def has_one_client(replication: object) -> bool:
    """Whether worker 0 alone takes steps; workers beside it, if any, serve it. Else each is a client."""
    return replication in {"in_graph", "local"}


def run_tasks(
    plan: ClusterPlan, training: Mapping[str, object] | TrainingSettings, program: bool
) -> tuple[RunTask, ...]:
    """Return the tasks of a run in the plan's order, then its servers.

    `training` holds at least `replication` and `existing_servers`. `program`: whether the user's own program
    runs. It gets all tasks of the plan, for psfleet cannot know what it does with them.
    """
    if isinstance(training, TrainingSettings):
        training = training.as_dict()
    if program:
        return tuple(RunTask(task.job, task.index, task.host) for task in plan.tasks)
    workers = plan.tasks_of("worker")
    if training["replication"] == "local":
        return tuple(RunTask(task.job, task.index, task.host) for task in workers[:1])
    served: tuple[RunTask, ...] = ()
    if training["existing_servers"]:
        # The workers of a graph that one client builds serve already, all but the client.
        clients = workers[:1] if has_one_client(training["replication"]) else workers
        served = tuple(RunTask(SERVER, task.index, task.host) for task in clients)
    return (
        *(RunTask(task.job, task.index, task.host) for task in (*plan.tasks_of("ps"), *workers)),
        *served,
    )
