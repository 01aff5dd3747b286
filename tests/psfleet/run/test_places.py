from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from psfleet.run.active_runs import RefusedError
from psfleet.run.places import absent_workers, dispensable_tasks, is_elastic, leaving_workers
from psfleet.run.start import hindrances
from tests.psfleet.run.answering_hosts import PLAN, found

TASKS: list[dict[str, Any]] = [
    {"name": "ps0", "job": "ps", "index": 0, "host": "n1", "role": "ps"},
    *(
        {"name": f"worker{index}", "job": "worker", "index": index, "host": f"n{index + 2}", "role": "client"}
        for index in range(3)
    ),
]


def asked(success: str | int = "chief", program: object = None, **training: object) -> dict[str, Any]:
    """Settings of a run, as `saved_settings` returns them."""
    return {"cluster": {"replication": "async", **training}, "program": program, "success": success}


def lives(name: str, run_id: str = "r1", *, alive: bool = True, code: int | None = None) -> dict[str, Any]:
    """Return the answer of a task's host."""
    answer = found(name, alive=alive, run_id=run_id)
    answer["tasks"][0] |= {"failed": code not in {None, 0, 143}, "exit_code": code}
    return answer


ALL = {"n1": lives("ps0"), "n2": lives("worker0"), "n3": lives("worker1"), "n4": lives("worker2")}


def refusal(settings: Mapping[str, Any], leave: Sequence[str], hosts: Mapping[str, Any] = ALL) -> str:
    with pytest.raises(RefusedError) as refused:
        leaving_workers("r1", TASKS, settings, leave, hosts)
    return str(refused.value)


@pytest.mark.parametrize(
    ("success", "leave", "names"),
    [("chief", ["n4"], ["worker2"]), (2, ["n4"], ["worker2"]), (1, ["n3", "n4"], ["worker1", "worker2"])],
)
def test_workers_leave_a_run_that_ends_well_without_them(
    success: str | int, leave: list[str], names: list[str]
) -> None:
    gone = leaving_workers("r1", TASKS, asked(success), leave, ALL)
    assert [task["name"] for task in gone] == names


def test_a_run_is_not_left_without_its_ps_or_its_chief() -> None:
    told = "run r1 cannot go on without ps0 on n1, worker0 on n2; nothing was stopped"
    said = refusal(asked(), ["n1", "n2", "n4"])
    assert said.startswith(told)
    assert said.endswith("To stop the whole run: ansible-playbook stop.yml -e run_id=r1")


@pytest.mark.parametrize(
    ("success", "words"),
    [
        ("all_workers", "training_run_success is all_workers, so 3 of 3 workers must finish"),
        (3, "training_run_success is 3, so 3 of 3 workers must finish"),
    ],
)
def test_a_run_keeps_the_workers_that_its_policy_asks_for(success: str | int, words: str) -> None:
    said = refusal(asked(success), ["n4"])
    assert said.startswith(f"{words}, the chief among them, and 2 workers would be left; nothing was stopped")
    assert said.endswith("ansible-playbook train.yml -e run_id=r1 -e training_run_success=2")


def test_workers_that_left_before_or_do_not_answer_do_not_count() -> None:
    before = ALL | {"n3": lives("worker1", alive=False, code=143)}
    assert "and 1 worker would be left; nothing" in refusal(asked(2), ["n4"], before)
    silent = {host: answer for host, answer in ALL.items() if host != "n3"}
    assert "1 worker would be left (n3 gave no answer); nothing" in refusal(asked(2), ["n4"], silent)
    other = ALL | {"n3": lives("worker1", "r2")}
    assert "1 worker would be left; nothing" in refusal(asked(2), ["n4"], other)
    no_chief = ALL | {"n2": lives("worker0", alive=False, code=0)}
    assert "the chief among them, and 2 workers would be left" not in refusal(asked(1), ["n4"], no_chief)


def test_a_host_without_a_task_of_the_run_is_named() -> None:
    assert refusal(asked(), ["n9"]) == "no task of run r1 is on n9; nothing was stopped"


@pytest.mark.parametrize(
    "settings",
    [
        asked(replication="sync"),
        asked(replication="in_graph"),
        asked(replication="local"),
        asked(model="partition"),
        asked(existing_servers=True),
        asked(program={"release": "abc"}),
    ],
)
def test_workers_leave_only_asynchronous_runs_of_models(settings: dict[str, Any]) -> None:
    assert not is_elastic(settings)
    assert "leave and join only an asynchronous run of a model" in refusal(settings, ["n4"])
    assert (
        dispensable_tasks("r1", TASKS, settings, {host: ALL[host] for host in ("n1", "n2", "n3")}, {}) == []
    )


@pytest.mark.parametrize(
    ("answer", "joins"),
    [
        (lives("worker2"), False),
        (lives("worker2", alive=False, code=0), False),  # it has finished
        (lives("worker2", alive=False, code=143), True),  # it left
        (lives("worker2", alive=False, code=70), True),  # systemd gave it up
        (lives("worker2", alive=False), True),  # systemd has forgotten it
        (lives("worker2", "r0", alive=False, code=0), True),  # it never had a part in this run
        (found("ps9"), True),
    ],
)
def test_a_worker_is_absent_if_it_is_not_alive_and_has_not_finished(
    answer: dict[str, Any], joins: bool
) -> None:
    hosts = ALL | {"n4": answer}
    assert [task["name"] for task in absent_workers("r1", TASKS, hosts)] == ["worker2"] * joins


def test_a_lost_ps_or_chief_and_a_worker_on_a_silent_host_do_not_join() -> None:
    hosts = {"n1": lives("ps0", alive=False, code=1), "n2": lives("worker0", alive=False, code=1)}
    assert [task["name"] for task in absent_workers("r1", TASKS, hosts)] == []


@pytest.mark.parametrize(
    ("success", "there", "names"),
    [
        ("chief", "n1 n2", ["worker1", "worker2"]),
        (2, "n1 n2 n3", ["worker2"]),
        (2, "n1 n2", []),
        ("all_workers", "n1 n2 n3", []),
        ("chief", "n1 n3 n4", []),
        ("chief", "n2 n3 n4", []),
        ("all_workers", "n1 n2 n3 n4", []),
    ],
)
def test_hosts_with_workers_that_the_policy_does_not_need_may_be_left_out(
    success: str | int, there: str, names: list[str]
) -> None:
    hosts = {host: ALL[host] for host in there.split()}
    assert dispensable_tasks("r1", TASKS, asked(success), hosts, {}) == names


def test_a_worker_that_takes_part_cannot_be_left_out() -> None:
    hosts = {host: ALL[host] for host in ("n1", "n2", "n3")}
    assert dispensable_tasks("r1", TASKS, asked(), hosts, {"n4": lives("worker2")}) == []
    assert dispensable_tasks("r1", TASKS, asked(), hosts, {"n4": lives("worker2", "r2")}) == ["worker2"]


def test_what_keeps_a_worker_from_joining_is_told() -> None:
    tasks = [TASKS[1] | {"host": "n2"}, TASKS[2] | {"host": "n1"}]
    fit = {"n1": found("worker1"), "n2": found("worker0")}
    assert hindrances(PLAN, tasks, "n1", fit) == []
    assert hindrances(PLAN, tasks, "n1", fit | {"n2": found("worker0", unfenced="no table")}) == []
    (bare,) = hindrances(PLAN, tasks, "n1", fit | {"n1": found("worker1", environment="")})
    assert bare == "run deploy.yml first, on these hosts: n1"
    (older,) = hindrances(PLAN, tasks, "n1", fit | {"n1": found("worker1", tensorflow="2.20.0")})
    assert older.endswith("run deploy.yml on n1")
    taken = {"name": "ports", "task": "worker1", "found": "nc holds port 2222", "remedy": "end it"}
    (port,) = hindrances(PLAN, tasks, "n1", fit | {"n1": found("worker1", checks=[taken])})
    assert port == "n1: nc holds port 2222; end it"
