"""The tasks of a run, their roles and their addresses, as a table with a task for each word."""

from typing import get_args

import pytest

from trainer.contract.plan import ClusterPlan, Job, PlannedTask
from trainer.contract.run_tasks import RunJob, has_one_client, run_tasks
from trainer.contract.settings import TrainingSettings
from trainer.host.task_units import EVALUATION, RUN_JOBS, UNIT_JOBS


def task(job: Job, index: int, host: str, port: int) -> PlannedTask:
    return PlannedTask(job, index, host, host, port)


PLAN = ClusterPlan(
    "psfleet",
    (
        task("ps", 0, "a", 2222),
        task("ps", 1, "b", 2222),
        task("worker", 0, "b", 2223),
        task("worker", 1, "c", 2222),
        task("worker", 2, "c", 2223),
    ),
)
CHIEF = task("chief", 0, "a", 2223)
WITH_CHIEF = ClusterPlan("psfleet", (*PLAN.tasks, CHIEF))
WITH_EVALUATOR = ClusterPlan("psfleet", (*WITH_CHIEF.tasks, task("evaluator", 0, "c", 2224)))
WITHOUT_PS = ClusterPlan("psfleet", (PLAN.tasks[2], CHIEF))
PS = "ps0=ps@a:2222 ps1=ps@b:2222"
# Workers that build a graph each are clients, and listen themselves.
CLIENTS = f"{PS} worker0=client@b:2223 worker1=client@c:2222 worker2=client@c:2223"
# A server of its own listens in place of its client.
SERVED = (
    f"{PS} worker0=client@ worker1=client@ worker2=client@ server0=server@b:2223 server1=server@c:2222 "
    "server2=server@c:2223"
)
# The workers of one graph serve its client, worker 0.
ONE_GRAPH = f"{PS} worker0=client@b:2223 worker1=server@c:2222 worker2=server@c:2223"
ONE_GRAPH_SERVED = f"{ONE_GRAPH.replace('=client@b:2223', '=client@')} server0=server@b:2223"
# The workers of a program's coordinator serve it.
COORDINATED = f"{ONE_GRAPH.replace('client', 'server')} chief0=client@a:2223"


@pytest.mark.parametrize(
    ("replication", "existing_servers", "tasks"),
    [
        ("async", False, CLIENTS),
        ("sync", False, CLIENTS),
        ("in_graph", False, ONE_GRAPH),
        ("async", True, SERVED),
        ("sync", True, SERVED),
        ("in_graph", True, ONE_GRAPH_SERVED),
        ("local", False, "worker0=client@"),
    ],
)
def test_each_replication_has_its_tasks_roles_and_addresses(
    replication: str, existing_servers: bool, tasks: str
) -> None:
    settings = TrainingSettings(replication=replication, existing_servers=existing_servers)
    found = run_tasks(PLAN, settings, False)
    assert " ".join(f"{task.name}={task.role}@{task.address}" for task in found) == tasks
    assert {task.host for task in found if task.name in {"worker0", "server0"}} == {"b"}
    assert run_tasks(WITH_CHIEF, settings, False) == run_tasks(PLAN, settings, False)
    assert run_tasks(WITH_EVALUATOR, settings, False) == run_tasks(PLAN, settings, False)
    assert has_one_client(replication) == (tasks.count("=client") == 1)


@pytest.mark.parametrize(
    ("plan", "tasks"),
    [
        (PLAN, CLIENTS),
        (WITH_CHIEF, COORDINATED),
        (WITHOUT_PS, "worker0=server@b:2223 chief0=client@a:2223"),
        (WITH_EVALUATOR, f"{COORDINATED} evaluator0=client@c:2224"),
    ],
)
@pytest.mark.parametrize("replication", ["async", "in_graph", "local"])
def test_a_program_has_every_task_of_the_plan(plan: ClusterPlan, replication: str, tasks: str) -> None:
    found = run_tasks(plan, TrainingSettings.from_mapping({"replication": replication}), True)
    assert " ".join(f"{task.name}={task.role}@{task.address}" for task in found) == tasks


def test_each_job_of_a_run_and_psfleets_own_evaluator_have_units() -> None:
    assert {*RUN_JOBS} == {*get_args(RunJob)}
    assert (*RUN_JOBS, EVALUATION) == UNIT_JOBS
