"""The plan as people see it."""

from psfleet.watch.plan_table import MOST_TASKS, plan_table
from trainer.contract.plan import ClusterPlan, PlannedTask
from trainer.contract.settings import TrainingSettings

PS = PlannedTask("ps", 0, "alpha", "192.0.2.11", 2222)


def shown(*tasks: PlannedTask, **settings: object) -> list[str]:
    chosen = {"cluster": TrainingSettings.from_mapping(settings).as_dict()}
    return plan_table(ClusterPlan("lab", tasks).to_json(), chosen).splitlines()


def worker(index: int, gpus: tuple[int, ...] = ()) -> PlannedTask:
    return PlannedTask("worker", index, "beta", "192.0.2.12", 2222 + index, gpus)


def test_each_task_has_a_row() -> None:
    assert shown(PS, worker(0, (0, 1)), worker(1)) == [
        "TASK     HOST   ADDRESS          GPUS",
        "ps0      alpha  192.0.2.11:2222  -",
        "worker0  beta   192.0.2.12:2222  0,1",
        "worker1  beta   192.0.2.12:2223  -",
    ]


def test_what_each_ps_will_hold_of_tables_is_a_column() -> None:
    assert shown(PS, worker(0), model="wide_deep") == [
        "TASK     HOST   ADDRESS          GPUS  WILL HOLD",
        "ps0      alpha  192.0.2.11:2222  -     33.8 MB",
        "worker0  beta   192.0.2.12:2222  -     -",
    ]
    assert shown(PS, worker(0), model="wide_deep", replication="local")[2].endswith("33.8 MB")


def test_only_the_first_of_many_tasks_have_a_row() -> None:
    *rows, last = shown(PS, *(worker(index) for index in range(MOST_TASKS + 6)))
    assert len(rows) == MOST_TASKS + 1
    assert last == "and 7 tasks more; each host has the plan"
