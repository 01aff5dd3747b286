from typing import Any

import pytest

from psfleet.run.host_answers import UnusableError, checked
from tests.psfleet.report.made_runs import make_plan
from tests.psfleet.watch.test_status import task

PLAN = make_plan().to_json()
WORKER = {**task("worker0"), "ended_by": "", "phase": "", "bytes_received": None, "bytes_sent": 2.0}
CHECK = {"name": "disk", "state": "ok", "found": "all", "remedy": "", "task": ""}
PROBE = {"host": "node1", "ports": [2222], "outcome": "open", "source": "", "name": "", "machine": ""}
RUN = {"run_id": "night-1", "size": 7, "changed": 1.5, "global_step": None}
ASKED = {"tasks": [{"job": "worker", "index": "0"}], "details": True}
ANSWERS: dict[str, dict[str, Any]] = {
    "trainer_tasks": {
        **{"changed": False, "deployed": PLAN, "tensorflow": "2.21.0", "unfenced": ""},
        **{"lacks_cuda": True, "holds_run": True},
        **{"release": "0123456789ab", "environment": "", "programs": ["0123456789ab"]},
        **{"stopped": {"worker0": 2}, "tasks": [WORKER]},
    },
    "host_doctor": {
        "checks": [CHECK],
        **{"alive": [], "deployed": "", "began": 1.5, "ended": 2},
    },
    "host_peers listening": {"machine": "x", "free": [2222], "held": [], "listener": {"pid": 7}},
    "host_peers probed": {"names": {"node1": ["::1"]}, "probes": [PROBE]},
    "host_requirements": {"environment": "cpu-python3.11-x86_64"},
    "host_runs listed": {"runs": [RUN]},
    "host_runs removed": {"removed": ["night-1"], "freed_bytes": 7},
    "unneeded_content": {"removed": ["/opt/psfleet/releases/0123456789ab"], "freed_bytes": 0},
    "run_archive": {"path": "/var/tmp/x", "size": 7, "left_out": ["y"]},
    "ssh_identity": {"user_key": "", "host_key": "x", "prepared": False, "addresses": []},
    "ssh_login": {"proven": True},
    "another": {},
}


def looked_at(module: str, change: dict[str, Any]) -> dict[str, Any]:
    name, _, state = module.partition(" ")
    return checked(name, ANSWERS[module] | change, ASKED | {"state": state})


@pytest.mark.parametrize("module", ANSWERS)
def test_an_answer_is_taken_as_it_is(module: str) -> None:
    assert looked_at(module, {}) == ANSWERS[module]


def test_a_host_that_is_not_asked_for_details_need_not_tell_them() -> None:
    few = {name: WORKER[name] for name in WORKER if name not in {"log", "progress"}}
    answer = ANSWERS["trainer_tasks"] | {"tasks": [few]}
    assert checked("trainer_tasks", answer, ASKED | {"details": False}) == answer
    with pytest.raises(UnusableError, match=r"^tasks\[0\].log is missing$"):
        checked("trainer_tasks", answer, ASKED)


@pytest.mark.parametrize(
    ("module", "change", "problem"),
    [
        ("trainer_tasks", {"lacks_cuda": 0}, "lacks_cuda is 0, which it cannot be"),
        ("trainer_tasks", {"release": "../../root"}, "release is '../../root', which it cannot be"),
        ("trainer_tasks", {"programs": ["0123456789ab", ""] * 5000}, "which it cannot be"),
        ("trainer_tasks", {"environment": None}, "environment is None, which it cannot be"),
        ("trainer_tasks", {"deployed": []}, "deployed is [], which it cannot be"),
        ("trainer_tasks", {"stopped": {"worker0": []}}, "stopped is {'worker0': []}, which it cannot be"),
        ("trainer_tasks", {"tasks": ["x"]}, "tasks is ['x'], which it cannot be"),
        ("trainer_tasks", {"tasks": [{}] * 5000}, "which it cannot be"),
        ("host_doctor", {"checks": [{}]}, "checks[0].name is missing"),
        ("host_doctor", {"checks": [CHECK | {"state": "dead"}]}, "[0].state is 'dead', which it cannot be"),
        ("host_doctor", {"began": None}, "began is None, which it cannot be"),
        ("host_doctor", {"ended": float("nan")}, "ended is nan, which it cannot be"),
        ("host_peers listening", {"free": ["x"]}, "free is ['x'], which it cannot be"),
        ("host_peers listening", {"held": [-1]}, "held is [-1], which it cannot be"),
        ("host_peers probed", {"names": []}, "names is [], which it cannot be"),
        ("host_peers probed", {"names": {"x": "y"}}, "names is {'x': 'y'}, which it cannot be"),
        ("host_peers probed", {"probes": [{"host": "node2"}]}, "probes[0].outcome is missing"),
        ("host_peers probed", {"probes": [PROBE | {"ports": 1}]}, "ports is 1, which it cannot be"),
        ("host_requirements", {"environment": "../x"}, "environment is '../x', which it cannot be"),
        ("host_runs listed", {"runs": {}}, "runs is {}, which it cannot be"),
        ("host_runs listed", {"runs": [RUN] * 5000}, "which it cannot be"),
        ("host_runs listed", {"runs": [RUN | {"run_id": "../x"}]}, "run_id is '../x', which it cannot be"),
        ("host_runs listed", {"runs": [RUN | {"size": 1e300}]}, "size is 1e+300, which it cannot be"),
        ("host_runs listed", {"runs": [RUN | {"size": -1}]}, "size is -1, which it cannot be"),
        ("host_runs listed", {"runs": [RUN | {"changed": None}]}, "changed is None, which it cannot be"),
        ("host_runs listed", {"runs": [RUN | {"global_step": "1"}]}, "step is '1', which it cannot be"),
        ("host_runs removed", {"freed_bytes": 10**400}, "which it cannot be"),
        ("another", {"freed_bytes": "all"}, "freed_bytes is 'all', which it cannot be"),
        ("run_archive", {"size": True}, "size is True, which it cannot be"),
        ("ssh_identity", {"addresses": [1]}, "addresses is [1], which it cannot be"),
    ],
)
def test_what_no_module_answers_is_named(module: str, change: dict[str, Any], problem: str) -> None:
    with pytest.raises(UnusableError) as error:
        looked_at(module, change)
    assert str(error.value).endswith(problem)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"pid": "x"}, "pid is 'x', which it cannot be"),
        ({"exit_code": -1}, "exit_code is -1, which it cannot be"),
        ({"restarts": 10**400}, f"restarts is 1{'0' * 296}..., which it cannot be"),
        ({"bytes_sent": "1"}, "bytes_sent is '1', which it cannot be"),
        ({"last_step": {"loss": []}}, "last_step is {'loss': []}, which it cannot be"),
        ({"name": "worker1"}, "name is 'worker1', of which nobody asked"),
        ({"name": "worker1", "index": 1}, "name is 'worker1', of which nobody asked"),
    ],
)
def test_what_no_task_is_is_named(change: dict[str, Any], problem: str) -> None:
    answer = ANSWERS["trainer_tasks"] | {"tasks": [WORKER, WORKER | change]}
    with pytest.raises(UnusableError) as error:
        checked("trainer_tasks", answer, ASKED)
    assert str(error.value) == f"tasks[1].{problem}"


def test_a_host_that_is_asked_for_others_may_tell_of_any_task() -> None:
    others = {"tasks": [], "others": True}
    answer = ANSWERS["trainer_tasks"] | {"tasks": [WORKER | {"name": "server3", "job": "server", "index": 3}]}
    assert checked("trainer_tasks", answer, others) == answer
    answer["tasks"][0] |= {"name": "x3", "job": "x"}
    with pytest.raises(UnusableError, match="nobody asked"):
        checked("trainer_tasks", answer, others)


def test_of_the_plan_that_was_asked_for_its_hash_is_enough() -> None:
    answer = ANSWERS["trainer_tasks"] | {"deployed": {"hash": PLAN["hash"]}}
    assert checked("trainer_tasks", answer, ASKED | {"plan_hash": PLAN["hash"]}) == answer
    for other in ("", "0" * 12):
        assert checked("trainer_tasks", answer, ASKED | {"plan_hash": other})["deployed"] == {}


@pytest.mark.parametrize("plan", [{"hash": PLAN["hash"]}, PLAN | {"tasks": []}, {}])
def test_a_plan_that_is_none_counts_as_not_deployed(plan: dict[str, Any]) -> None:
    answer = ANSWERS["trainer_tasks"] | {"deployed": plan}
    assert checked("trainer_tasks", answer, ASKED)["deployed"] == {}
