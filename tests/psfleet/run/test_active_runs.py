"""The runs that are going on, and what stop.yml stops."""

import re

import pytest

from psfleet.run.active_runs import RefusedError, run_to_stop, tasks_to_stop, unstopped_message
from tests.psfleet.run.answering_hosts import TASKS, found


def test_all_running_tasks_of_a_run_are_stopped_also_beside_the_inventory() -> None:
    hosts = {
        "n1": found("ps0", alive=True, run_id="r1"),
        "n2": found("worker3", alive=True, run_id="r1"),
        "n3": found("worker9", run_id="r1"),
        "n4": found("server3", alive=True, run_id="r1"),
    }
    stopped = {(task["name"], task["host"]): task for task in tasks_to_stop("r1", TASKS, hosts)}
    assert list(stopped) == [("ps0", "n1"), ("worker0", "n2"), ("worker3", "n2"), ("server3", "n4")]
    assert ["stray" in task for task in stopped.values()] == [False, False, True, True]
    assert [task["role"] for task in stopped.values()] == ["ps", "client", "client", "server"]


def test_tasks_on_unreached_hosts_are_named_as_perhaps_alive() -> None:
    assert unstopped_message(TASKS, {"n1", "n2"}) == ""
    assert "perhaps still alive: worker0 on n2." in unstopped_message(TASKS, {"n1"})


def test_the_run_that_is_going_on_is_found() -> None:
    assert run_to_stop({"n1": found("ps0", alive=True, run_id="r1"), "n2": found("worker0")}) == "r1"
    assert run_to_stop({"n1": found("ps0", run_id="r1")}) == ""


def test_only_the_named_run_is_stopped() -> None:
    hosts = {"n1": found("ps0", alive=True, run_id="r1")}
    assert run_to_stop(hosts, "r1") == "r1"
    assert run_to_stop({"n1": found("ps0", run_id="r1")}, "r1") == ""
    hosts = {"n1": found("ps0", alive=True, run_id="r1", begun="ana@desk")}
    with pytest.raises(RefusedError, match="that is going on is r1, begun by ana@desk; nothing was"):
        run_to_stop(hosts, "r0")
    for other in ("r0", "r", "r11"):
        with pytest.raises(RefusedError, match=f"run_id is {other}, but the run that is going on is r1"):
            run_to_stop(hosts, other)


@pytest.mark.parametrize("run_id", ["../../etc", ""])
def test_an_invalid_run_id_of_a_host_is_refused(run_id: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(repr(run_id))):
        run_to_stop({"n1": found("ps0", alive=True, run_id=run_id)})


def test_stopping_is_refused_while_two_runs_are_going_on() -> None:
    hosts = {"n1": found("ps0", alive=True, run_id="r1"), "n2": found("worker0", alive=True, run_id="r2")}
    with pytest.raises(RefusedError, match="r1; r2"):
        run_to_stop(hosts)
