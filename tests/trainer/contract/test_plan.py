import json

import pytest

from trainer.contract.plan import ClusterPlan, PlannedTask

PLAN = ClusterPlan(
    "psfleet",
    (
        PlannedTask("ps", 0, "node1", "10.0.0.1", 2222),
        PlannedTask("worker", 0, "node1", "10.0.0.1", 2223, (0,)),
        PlannedTask("worker", 1, "node2", "[fd00::2]", 2222, (1, 2)),
    ),
)


def test_tasks_of_lists_the_tasks_of_one_job() -> None:
    assert (PLAN.ps_hosts, PLAN.worker_hosts) == ("10.0.0.1:2222", "10.0.0.1:2223,[fd00::2]:2222")
    assert [task.name for task in PLAN.tasks_of("worker")] == ["worker0", "worker1"]
    assert PLAN.chief.name == "worker0"


def test_tf_config_has_the_documented_form_and_omits_jobs_without_tasks() -> None:
    assert json.loads(PLAN.tf_config(PLAN.tasks[2])) == {
        "cluster": {"ps": ["10.0.0.1:2222"], "worker": ["10.0.0.1:2223", "[fd00::2]:2222"]},
        "task": {"type": "worker", "index": 1},
    }
    plan = ClusterPlan("psfleet", (*PLAN.tasks[1:], PlannedTask("chief", 0, "node1", "10.0.0.1", 2224)))
    assert json.loads(plan.tf_config(plan.tasks[2])) == {
        "cluster": {"worker": ["10.0.0.1:2223", "[fd00::2]:2222"], "chief": ["10.0.0.1:2224"]},
        "task": {"type": "chief", "index": 0},
    }
    evaluated = ClusterPlan("psfleet", (*plan.tasks, PlannedTask("evaluator", 0, "node3", "10.0.0.3", 2222)))
    assert json.loads(evaluated.tf_config(evaluated.tasks[3])) == {
        "cluster": json.loads(plan.tf_config(plan.tasks[2]))["cluster"],
        "task": {"type": "evaluator", "index": 0},
    }


def test_a_plan_survives_a_round_trip_through_json() -> None:
    written = json.loads(json.dumps(PLAN.to_json()))
    task = {"job": "worker", "index": 1, "host": "node2", "address": "[fd00::2]", "port": 2222}
    assert written["tasks"][2] == task | {"gpus": [1, 2]}
    assert ClusterPlan.from_json({**written, "ps_hosts": PLAN.ps_hosts}) == PLAN


def test_the_hash_depends_only_on_the_tasks_and_the_cluster_name() -> None:
    # Deployed plans are compared by it, so the way it is made must not change unnoticed.
    assert PLAN.hash == ClusterPlan("psfleet", PLAN.tasks).hash == "2cb490d71d99"
    assert ClusterPlan("other", PLAN.tasks).hash != PLAN.hash
    assert ClusterPlan("psfleet", PLAN.tasks[:2]).hash != PLAN.hash


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "^the plan has version 2; expected 1$"),
        (
            {"cluster_name": "other"},
            f"^the plan's hash is {PLAN.hash!r}, its content's is {ClusterPlan('other', PLAN.tasks).hash!r}$",
        ),
        ({"tasks": [{"job": "ps"}]}, r"^the plan is invalid: tasks\[0\].index is missing; "),
        ({"hash": None}, "^the plan's hash is None, its content's is"),
        ({"cluster_name": ["psfleet"]}, "cluster_name is .*; expected a text"),
        *(
            ({"tasks": [PLAN.tasks[0].to_json() | {name: value}]}, rf"tasks\[0\].{name}.* is .*; expected ")
            for name, value in {
                "job": ["ps"],
                "index": "0",
                "port": True,
                "gpus": [10**6],
                "host": None,
                "address": 7,
            }.items()
        ),
    ],
)
def test_a_tampered_plan_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClusterPlan.from_json({**PLAN.to_json(), **change})
