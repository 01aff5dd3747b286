from pathlib import Path
from typing import Any

import pytest
from ansible import constants

from plugins.hints import with_inventory
from trainer.host.environment import TENSORFLOW_VERSION
from trainer.run_start import Decision, Folder, decide, going_on, stopped_tasks, unstopped

PLAN: dict[str, Any] = {
    "hash": "aaa",
    "tasks": [
        {"job": "ps", "index": 0, "host": "n1", "address": "10.0.0.1", "port": 2222, "gpus": []},
        {"job": "worker", "index": 0, "host": "n2", "address": "10.0.0.2", "port": 2222, "gpus": []},
    ],
}

TASKS: list[dict[str, Any]] = [
    {"name": "ps0", "job": "ps", "index": 0, "host": "n1", "role": "ps"},
    {"name": "worker0", "job": "worker", "index": 0, "host": "n2", "role": "client"},
]


def found(
    name: str,
    *,
    alive: bool = False,
    run_id: str = "",
    deployed: dict[str, Any] | None = None,
    phase: str = "",
    tensorflow: str = TENSORFLOW_VERSION,
    lacks_cuda: bool = True,
) -> dict[str, Any]:
    task = {"name": name, "job": name[:-1], "index": int(name[-1])}
    task |= {"alive": alive, "run_id": run_id, "phase": phase}
    return {
        "deployed": PLAN if deployed is None else deployed,
        "tensorflow": tensorflow,
        "lacks_cuda": lacks_cuda,
        "tasks": [task],
    }


def test_deployed_and_idle_hosts_start() -> None:
    assert decide("r1", PLAN, TASKS, {"n1": found("ps0"), "n2": found("worker0")}, Folder()).action == "start"


def test_a_stopped_run_goes_on() -> None:
    assert (
        decide(
            "r1", PLAN, TASKS, {"n1": found("ps0"), "n2": found("worker0")}, Folder("stopped", "aaa")
        ).action
        == "start"
    )


def test_the_same_run_is_attached_to() -> None:
    hosts = {"n1": found("ps0"), "n2": found("worker0", alive=True, run_id="r1")}
    assert decide("r1", PLAN, TASKS, hosts, Folder("running", "aaa")).action == "attach"


def test_a_start_that_was_interrupted_before_the_chief_is_made_whole() -> None:
    hosts = {"n1": found("ps0", alive=True, run_id="r1"), "n2": found("worker0")}
    assert decide("r1", PLAN, TASKS, hosts, Folder("running", "aaa")).action == "start"


@pytest.mark.parametrize(
    ("phase", "action"),
    [("finished", "collect"), ("failed", "collect"), ("training", "start"), ("", "start")],
)
def test_a_run_that_ended_while_nobody_watched_is_collected(phase: str, action: str) -> None:
    hosts = {"n1": found("ps0", run_id="r1"), "n2": found("worker0", run_id="r1", phase=phase)}
    assert decide("r1", PLAN, TASKS, hosts, Folder("running", "aaa")).action == action


@pytest.mark.parametrize("phase", ["finished", "failed"])
def test_a_run_that_ended_unwatched_is_collected_also_where_its_ps_still_serve(phase: str) -> None:
    hosts = {
        "n1": found("ps0", alive=True, run_id="r1"),
        "n2": found("worker0", run_id="r1", phase=phase),
    }
    assert decide("r1", PLAN, TASKS, hosts, Folder("running", "aaa")).action == "collect"


def test_a_run_stays_on_the_plan_that_it_began_on() -> None:
    (problem,) = decide(
        "r1", PLAN, TASKS, {"n1": found("ps0"), "n2": found("worker0")}, Folder("stopped", "bbb")
    ).problems
    assert "run r1 began on plan bbb, today's inventory is plan aaa" in problem


def test_a_host_without_a_task_in_the_run_need_not_be_deployed() -> None:
    hosts = {"n1": found("ps0", deployed={}), "n2": found("worker0")}
    assert decide("r1", PLAN, TASKS[1:], hosts, Folder()).action == "start"


def test_a_task_of_another_run_is_seen_on_a_host_without_a_task_in_this_one() -> None:
    hosts = {"n1": found("server7", alive=True, run_id="r0"), "n2": found("worker0")}
    (problem,) = decide("r1", PLAN, TASKS[1:], hosts, Folder()).problems
    assert "run r0 is going on (server7 on n1)" in problem


def test_the_chief_of_a_program_decides_whether_its_run_goes_on() -> None:
    chief = {"name": "chief0", "job": "chief", "index": 0, "host": "n3", "role": "client"}
    idle = {"n1": found("ps0"), "n2": found("worker0", alive=True, run_id="r1")}
    state = Folder("running", "aaa")
    for alive, action in ((True, "attach"), (False, "start")):
        hosts = {**idle, "n3": found("chief0", alive=alive, run_id="r1")}
        assert decide("r1", PLAN, [*TASKS, chief], hosts, state).action == action


def test_what_is_stopped_is_what_runs_whatever_the_inventory_says() -> None:
    hosts = {
        "n1": found("ps0", alive=True, run_id="r1"),
        "n2": found("worker3", alive=True, run_id="r1"),
        "n3": found("worker9", run_id="r1"),
    }
    stopped = {(task["name"], task["host"]): task for task in stopped_tasks("r1", TASKS, hosts)}
    assert list(stopped) == [("ps0", "n1"), ("worker0", "n2"), ("worker3", "n2")]
    assert ["stray" in task for task in stopped.values()] == [False, False, True]
    assert stopped["worker3", "n2"]["role"] == "client"


def test_tasks_on_hosts_that_were_not_reached_are_named() -> None:
    assert unstopped(TASKS, {"n1", "n2"}) == ""
    assert "perhaps still alive: worker0 on n2." in unstopped(TASKS, {"n1"})


def test_the_run_to_stop_is_found() -> None:
    assert going_on({"n1": found("ps0", alive=True, run_id="r1"), "n2": found("worker0")}) == "r1"
    assert going_on({"n1": found("ps0", run_id="r1")}) == ""


def test_another_run_than_the_one_named_is_not_stopped() -> None:
    hosts = {"n1": found("ps0", alive=True, run_id="r1")}
    assert going_on(hosts, "r1") == "r1"
    assert going_on({"n1": found("ps0", run_id="r1")}, "r1") == ""
    refused = going_on(hosts, "r0")
    assert isinstance(refused, Decision)
    assert "run_id is r0, but the run that is going on is r1" in refused.problems[0]


@pytest.mark.parametrize("run_id", ["../../etc", ""])
def test_a_host_cannot_name_a_path(run_id: str) -> None:
    refused = going_on({"n1": found("ps0", alive=True, run_id=run_id)})
    assert isinstance(refused, Decision)
    assert repr(run_id) in refused.problems[0]


def test_two_runs_are_not_stopped_as_one() -> None:
    hosts = {"n1": found("ps0", alive=True, run_id="r1"), "n2": found("worker0", alive=True, run_id="r2")}
    refused = going_on(hosts)
    assert isinstance(refused, Decision)
    assert "r1, r2" in refused.problems[0]


def test_another_run_is_named() -> None:
    hosts = {"n1": found("ps0", alive=True, run_id="r0"), "n2": found("worker0")}
    (problem,) = decide("r1", PLAN, TASKS, hosts, Folder()).problems
    assert "run r0 is going on (ps0 on n1)" in problem
    assert "stop.yml" in problem


def test_bare_hosts_are_told_to_deploy() -> None:
    (problem,) = decide(
        "r1", PLAN, TASKS, {"n1": found("ps0", deployed={}), "n2": found("worker0")}, Folder()
    ).problems
    assert problem == "run deploy.yml first, on these hosts: n1"


def test_tasks_with_gpus_need_a_tensorflow_with_cuda() -> None:
    """A host that a release before GPUs has deployed has the same plan, and the same version."""
    plan = {**PLAN, "tasks": [PLAN["tasks"][0], {**PLAN["tasks"][1], "gpus": [0]}]}
    hosts = {"n1": found("ps0"), "n2": found("worker0")}
    assert decide("r1", plan, TASKS, hosts, Folder()) == Decision(
        "refuse", ("tasks have GPUs on n2, and TensorFlow there has no CUDA: run deploy.yml",)
    )
    hosts["n2"] = found("worker0", lacks_cuda=False)
    assert decide("r1", plan, TASKS, hosts, Folder()).action == "start"
    hosts["n2"] = found("worker0", run_id="r1", phase="finished")
    assert decide("r1", plan, TASKS, hosts, Folder("running", "aaa")).action == "collect"


def test_hosts_with_different_versions_of_tensorflow_are_told_apart() -> None:
    old = {"n1": found("ps0", tensorflow="2.20.0"), "n2": found("worker0")}
    (problem,) = decide("r1", PLAN, TASKS, old, Folder()).problems
    assert problem == (
        f"the hosts have different versions of TensorFlow (2.20.0 on n1; {TENSORFLOW_VERSION} on n2): "
        "run deploy.yml on n1"
    )
    torn = {"n1": found("ps0"), "n2": found("worker0", tensorflow="")}
    (problem,) = decide("r1", PLAN, TASKS, torn, Folder()).problems
    assert "none that is whole on n2): run deploy.yml on n2" in problem


def test_hosts_that_all_have_the_version_of_the_past_start() -> None:
    hosts = {"n1": found("ps0", tensorflow="2.20.0"), "n2": found("worker0", tensorflow="2.20.0")}
    assert decide("r1", PLAN, TASKS, hosts, Folder()).action == "start"


def test_versions_are_not_asked_of_hosts_that_take_no_part_or_were_never_deployed() -> None:
    idle = {"n1": found("ps0"), "n2": found("worker0"), "n3": found("worker7", tensorflow="2.20.0")}
    assert decide("r1", PLAN, TASKS, idle, Folder()).action == "start"
    bare = {"n1": found("ps0", deployed={}, tensorflow=""), "n2": found("worker0")}
    assert len(decide("r1", PLAN, TASKS, bare, Folder()).problems) == 1


def test_a_run_that_goes_on_is_watched_although_a_host_was_deployed_anew() -> None:
    hosts = {
        "n1": found("ps0", tensorflow="2.20.0", alive=True, run_id="r1"),
        "n2": found("worker0", alive=True, run_id="r1"),
    }
    assert decide("r1", PLAN, TASKS, hosts, Folder("running", "aaa")).action == "attach"


def test_a_changed_inventory_is_shown() -> None:
    moved = {**PLAN, "hash": "bbb", "tasks": [PLAN["tasks"][0], {**PLAN["tasks"][1], "port": 2999}]}
    (problem,) = decide(
        "r1", PLAN, TASKS, {"n1": found("ps0", deployed=moved), "n2": found("worker0")}, Folder()
    ).problems
    assert "worker0: n2 10.0.0.2:2999 GPUs [] deployed, n2 10.0.0.2:2222 GPUs [] in the inventory" in problem
    assert "run deploy.yml" in problem


def test_a_task_that_was_left_out_or_gave_no_answer_is_refused() -> None:
    (problem,) = decide("r1", PLAN, TASKS, {"n1": found("ps0")}, Folder()).problems
    assert "--limit leaves out worker0 on n2, or these hosts gave no answer" in problem


def test_all_problems_come_together() -> None:
    decision = decide("r1", PLAN, TASKS, {"n1": found("ps0", deployed={})}, Folder("ended", "aaa"))
    assert decision.action == "refuse"
    assert len(decision.problems) == 3


@pytest.mark.parametrize("run_id", ["a/b", "..", "a b", "", "Night", "-x", "a" * 64, "a\n"])
def test_a_run_id_that_is_no_folder_name_is_refused(run_id: str) -> None:
    (problem,) = decide(run_id, PLAN, TASKS, {}, Folder()).problems
    assert repr(run_id) in problem


def test_advice_names_the_inventory_unless_it_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "end it with ansible-playbook stop.yml"
    assert with_inventory(text, [f"{tmp_path}/mine"]) == "end it with ansible-playbook -i mine stop.yml"
    assert with_inventory(text, list(constants.DEFAULT_HOST_LIST)) == text
