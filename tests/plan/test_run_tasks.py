import pytest

from trainer.plan import ClusterPlan, Job, Task
from trainer.run_tasks import run_tasks
from trainer.settings import TrainingSettings


def task(job: Job, index: int, host: str, port: int) -> Task:
    return Task(job, index, host, host, port)


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
EVERY = "ps0@a ps1@b worker0@b worker1@c worker2@c"


def tasks(plan: ClusterPlan = PLAN, *, program: bool = False, **values: object) -> str:
    found = run_tasks(plan, TrainingSettings.from_mapping(values), program)
    return " ".join(f"{task.name}@{task.host}" for task in found)


@pytest.mark.parametrize("replication", ["async", "sync", "in_graph"])
def test_every_task_takes_part(replication: str) -> None:
    assert tasks(replication=replication) == EVERY


def test_local_is_the_first_worker_alone() -> None:
    assert tasks(replication="local") == "worker0@b"


@pytest.mark.parametrize("replication", ["async", "sync"])
def test_every_client_has_a_server_of_its_own(replication: str) -> None:
    assert tasks(replication=replication, existing_servers=True) == f"{EVERY} server0@b server1@c server2@c"


def test_of_one_graph_over_all_workers_only_the_client_lacks_a_server() -> None:
    assert tasks(replication="in_graph", existing_servers=True) == f"{EVERY} server0@b"


@pytest.mark.parametrize("replication", ["async", "local"])
def test_a_program_has_every_task_of_the_plan(replication: str) -> None:
    with_chief = ClusterPlan("psfleet", (*PLAN.tasks, CHIEF))
    assert tasks(with_chief, program=True, replication=replication) == f"{EVERY} chief0@a"


def test_a_program_may_do_without_ps() -> None:
    plan = ClusterPlan("psfleet", (PLAN.tasks[2], CHIEF))
    assert tasks(plan, program=True) == "worker0@b chief0@a"


def test_settings_as_a_run_keeps_them_are_taken_too() -> None:
    kept = {"replication": "in_graph", "existing_servers": True, "steps": 7}
    assert [task.name for task in run_tasks(PLAN, kept, False)][-1] == "server0"
