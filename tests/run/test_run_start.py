from typing import Any

import pytest

from trainer.run_start import decide

PLAN: dict[str, Any] = {
    "hash": "aaa",
    "tasks": [
        {"job": "ps", "index": 0, "host": "n1", "address": "10.0.0.1", "port": 2222, "gpus": []},
        {"job": "worker", "index": 0, "host": "n2", "address": "10.0.0.2", "port": 2222, "gpus": []},
    ],
}


def found(
    name: str, *, alive: bool = False, run_id: str = "", deployed: dict[str, Any] | None = None
) -> dict[str, Any]:
    task = {"name": name, "alive": alive, "run_id": run_id}
    return {"deployed": PLAN if deployed is None else deployed, "tasks": [task]}


def test_deployed_and_idle_hosts_start() -> None:
    assert decide("r1", PLAN, {"n1": found("ps0"), "n2": found("worker0")}, "").action == "start"


def test_a_stopped_run_goes_on() -> None:
    assert decide("r1", PLAN, {"n1": found("ps0"), "n2": found("worker0")}, "stopped").action == "start"


def test_the_same_run_is_attached_to() -> None:
    hosts = {"n1": found("ps0", alive=True, run_id="r1"), "n2": found("worker0")}
    assert decide("r1", PLAN, hosts, "running").action == "attach"


def test_another_run_is_named() -> None:
    hosts = {"n1": found("ps0", alive=True, run_id="r0"), "n2": found("worker0")}
    (problem,) = decide("r1", PLAN, hosts, "").problems
    assert "run r0 is going on (ps0 on n1)" in problem
    assert "stop.yml" in problem


def test_bare_hosts_are_told_to_deploy() -> None:
    (problem,) = decide("r1", PLAN, {"n1": found("ps0", deployed={}), "n2": found("worker0")}, "").problems
    assert problem == "run deploy.yml first, on these hosts: n1"


def test_a_changed_inventory_is_shown() -> None:
    moved = {**PLAN, "hash": "bbb", "tasks": [PLAN["tasks"][0], {**PLAN["tasks"][1], "port": 2999}]}
    (problem,) = decide("r1", PLAN, {"n1": found("ps0", deployed=moved), "n2": found("worker0")}, "").problems
    assert "worker0: n2 10.0.0.2:2999 GPUs [] deployed, n2 10.0.0.2:2222 GPUs [] in the inventory" in problem
    assert "run deploy.yml" in problem


def test_a_limit_that_leaves_a_task_out_is_refused() -> None:
    (problem,) = decide("r1", PLAN, {"n1": found("ps0")}, "").problems
    assert "worker0 on n2" in problem


def test_all_problems_come_together() -> None:
    decision = decide("r1", PLAN, {"n1": found("ps0", deployed={})}, "ended")
    assert decision.action == "refuse"
    assert len(decision.problems) == 3


@pytest.mark.parametrize("run_id", ["a/b", "..", "a b", "", "Night", "-x", "a" * 64, "a\n"])
def test_a_run_id_that_is_no_folder_name_is_refused(run_id: str) -> None:
    (problem,) = decide(run_id, PLAN, {}, "").problems
    assert repr(run_id) in problem
