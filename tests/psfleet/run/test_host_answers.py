from importlib import import_module
from typing import Any

import pytest
import yaml

from psfleet.run.host_answers import ANSWERS as KEPT
from psfleet.run.host_answers import FACTS, UnusableError, checked
from tests.plugins.module_utils.described import DEBIAN
from tests.psfleet.report.made_runs import make_plan
from tests.psfleet.watch.test_status import task
from tests.repository import ROOT
from trainer.host.error_lines import exception_in

PLAN = make_plan().to_json()
ANA = "ana@desk, 2026-11-25 09:12 UTC"
WORKER = {
    **task("worker0"),
    "begun": ANA,
    "ended_by": "",
    "phase": "",
    "bytes_received": None,
    "bytes_sent": 2,
}
CHECK = {"name": "disk", "state": "ok", "found": "all", "remedy": "", "task": ""}
PROBE = {"host": "node1", "ports": [2222], "outcome": "open", "source": "", "name": "", "machine": ""}
RUN = {"run_id": "night-1", "size": 7, "changed": 1.5, "global_step": None}
ASKED = {"tasks": [{"job": "worker", "index": "0"}], "details": True}
ANSWERS: dict[str, dict[str, Any]] = {
    "trainer_tasks": {
        **{
            "changed": False,
            "deployed": PLAN,
            "deployed_by": "ana as cluster@desk",
            "tensorflow": "2.21.0",
            "unfenced": "",
        },
        **{"lacks_cuda": True, "holds_run": True, "checks": [CHECK]},
        **{"release": "0123456789ab", "environment": "", "programs": ["0123456789ab"]},
        "program_environments": {"0123456789ab": "ba9876543210"},
        **{"looked": 3.5, "stopped": {"worker0": 2}, "tasks": [WORKER]},
    },
    "trainer_tasks reloaded": {"departed": ["psfleet-ps@0.service"]},
    "carried_files": {"needs_manifest": False, "lacking": [0, 7]},
    "content_release": {"needs_archive": True, "release": "0123456789ab"},
    "content_release pruned": {"removed": ["/opt/psfleet/releases/0123456789ab"], "freed_bytes": 0},
    "gpu_facts": {"gpu_facts": {}, "checks": [CHECK], "installation": {}, "broken": ["driver"]},
    "host_doctor": {
        "checks": [CHECK],
        **{"alive": [], "deployed": "", "listened": False, "began": 1.5, "ended": 2.5},
    },
    "host_doctor listening": {"machine": "x", "free": [2222], "held": [], "listener": {"pid": 7}},
    "host_doctor probed": {"names": {"node1": ["::1"]}, "probes": [PROBE]},
    "host_facts": {"ansible_facts": {}},
    "host_lease": {"problem": ""},
    "host_requirements": {
        **{"environment": "cpu-python3.11-x86_64", "python": "/usr/bin/python3.11"},
        "programs": {"0123456789ab": "cpu-python3.11-x86_64-tensorflow2.15.1"},
        "system": DEBIAN.for_roles,
    },
    "host_reset": {"removed": ["units"], "stays": []},
    "host_runs": {"runs": [RUN]},
    "host_runs removed": {"removed": ["night-1"], "freed_bytes": 7},
    "host_runs packed": {"path": "/var/tmp/x", "size": 7, "files": 1, "left_out": ["y"]},
    "files": {"changed_paths": ["/etc/x"], "removed_paths": []},
    "port_fence": {"changed_paths": ["/etc/x"]},
    "python_environment": {"needs_archive": True, "not_given": "node2: busy"},
    "content": {
        "releases": ["a" * 12],
        "programs": [],
        "environments": [],
        "settled": ["a" * 12],
    },
    "units": {"up_to_date": True},
    "ssh_identity": {
        **{"user_key": "", "host_key": "x", "prepared": False, "proven": False, "addresses": []},
        **{"authority": "", "cluster": "", "certificate": "", "deployed_by": ""},
    },
    "ssh_login": {"proven": True},
}
OF_ALL: dict[str, Any] = {
    **{"changed": True, "failed": False, "msg": "done", "warnings": ["look"]},
    "diff": [{"before": "", "after": {"mode": "0644"}}],
}
PRINTED = ROOT / "tests" / "trainer" / "host" / "printed" / "missing_file_session.txt"
MARK = "touch /nowhere"
# Fields of an answer with a meaning to Ansible itself; some of them act on the controller.
SPECIAL: dict[str, Any] = {
    "add_host": {"host_name": "node1", "groups": ["ps"], "host_vars": {"ansible_ssh_common_args": MARK}},
    "add_group": "ps",
    "ansible_facts": {"training_run_hook": MARK, "discovered_interpreter_python": MARK},
    "ansible_facts_cacheable": True,
    "ansible_stats": {"data": {"x": 1}, "per_host": True, "aggregate": True},
    "ansible_included_var_files": ["/etc/passwd"],
    "ansible_loop_var": "item",
    "failed_when_result": False,
    "failed_when_suppressed_exception": "x",
    "changed_when_result": True,
    "_ansible_parsed": True,
    "_ansible_notify": ["Restart TensorBoard"],
    "_ansible_delegated_vars": {"ansible_host": "x"},
    "_ansible_facts_cacheable": True,
    "_ansible_no_log": True,
    "_ansible_verbose_always": True,
    "_ansible_suppress_tmpdir_delete": True,
    "exception": "it broke",
    "deprecations": [{"msg": "x", "version": "1"}],
    "invocation": {"module_args": {"x": 1}},
    "results": [{"failed": False, "add_host": {"host_name": "node1"}}],
    "ansible_module_results": "x",
    "include": "/etc/passwd",
    "include_args": {"x": 1},
    "unreachable": True,
    "skipped": True,
    "skip_reason": "x",
    "finished": 1,
    "started": 1,
    "ansible_job_id": "1",
    "attempts": 3,
    "retries": 3,
    "rc": 0,
    "cmd": MARK,
    "stdout": "x",
    "stdout_lines": ["x"],
    "stderr": "x",
    "module_stdout": "x",
    "module_stderr": "x",
    "item": "x",
    "censored": "x",
    "failed_step": "x",
    "changed_steps": ["x"],
    "reached": True,
    "summary": "x",
    "problem": "",
}


def looked_at(module: str, change: dict[str, Any]) -> dict[str, Any]:
    name, _, state = module.partition(" ")
    return checked(name, ANSWERS[module] | change, ASKED | {"state": state})


@pytest.mark.parametrize("module", ANSWERS)
def test_a_valid_answer_is_accepted_unchanged(module: str) -> None:
    assert looked_at(module, {}) == ANSWERS[module]


@pytest.mark.parametrize("module", ANSWERS)
def test_only_described_fields_of_an_answer_are_kept(module: str) -> None:
    told = OF_ALL | ANSWERS[module]
    assert looked_at(module, {**SPECIAL, **told}) == told
    failed = OF_ALL | {"failed": True}
    assert looked_at(module, {**SPECIAL, **failed}) == failed
    # An answer that reports a failure needs no other field.
    name, _, state = module.partition(" ")
    assert checked(name, SPECIAL | {"failed": True}, ASKED | {"state": state}).keys() == {"failed", "msg"}


# The other files there document actions, which ship nothing.
MODULES = {
    path.stem for path in (ROOT / "plugins" / "modules").glob("*.py") if "def main(" in path.read_text()
}


def returned_by(module: str) -> dict[str, Any]:
    """Return the fields that a module documents, or those of a part of `host_facts`."""
    parts = {kind: part for part, kind in FACTS.items()}
    of_module = import_module(f"plugins.modules.{module if module in MODULES else 'host_facts'}")
    documented: dict[str, Any] = yaml.safe_load(of_module.RETURN) or {}
    if module in parts and module not in MODULES:
        facts = documented["ansible_facts"]["contains"]
        return dict(facts[f"psfleet_{parts[module]}"]["contains"])
    return documented


@pytest.mark.parametrize("module", sorted(MODULES | set(FACTS.values())))
def test_the_kept_fields_of_a_module_equal_those_of_its_return(module: str) -> None:
    """Answers of an undescribed module are refused, so a new module must be described."""
    states = [name for name in KEPT if name.partition(" ")[0] == module]
    kept = {name: rule for state in states for name, rule in KEPT[state].items()}
    types = {name: type(ANSWERS[state][name]).__name__ for state in states for name in KEPT[state]}
    returned = returned_by(module)
    always = {name for name, field in returned.items() if field["returned"] in {"always", "success"}}
    assert types == {name: field["type"] for name, field in returned.items()}
    if len(states) == 1:
        assert {name for name, rule in kept.items() if not rule.optional} == always


def test_the_look_at_a_host_has_the_fact_of_each_part_that_was_asked_for_and_no_other() -> None:
    facts = {f"psfleet_{part}": ANSWERS[kind] for part, kind in FACTS.items()}
    asked = {"found": ASKED, "identity": {}, "gpus": None}
    kept = checked("host_facts", {"ansible_facts": facts | {"ansible_user": "x"}}, asked)
    assert kept["ansible_facts"] == {name: facts[name] for name in ("psfleet_found", "psfleet_identity")}
    lies: list[Any] = [None, [], {**ANSWERS["ssh_identity"], "prepared": "yes"}]
    for lie in lies:
        with pytest.raises(UnusableError):
            checked("host_facts", {"ansible_facts": facts | {"psfleet_identity": lie}}, asked)


def test_an_answer_of_an_undescribed_module_is_refused() -> None:
    with pytest.raises(
        UnusableError, match=r"^psfleet has no description of what ansible.builtin.setup answers$"
    ):
        checked("ansible.builtin.setup", {"ansible_facts": {}}, {})


def test_fields_of_details_are_required_only_if_details_were_requested() -> None:
    few = {name: WORKER[name] for name in WORKER if name not in {"log", "progress"}}
    answer = ANSWERS["trainer_tasks"] | {"tasks": [few]}
    assert "log_end" not in checked("trainer_tasks", answer, ASKED | {"details": False})["tasks"][0]
    with pytest.raises(UnusableError, match=r"^tasks\[0\].log is missing$"):
        checked("trainer_tasks", answer, ASKED)


# A step, what is changed in its answer, and a part of the problem that is reported.
INVALID: list[tuple[str, dict[str, Any], str]] = [
    ("trainer_tasks", {"deployed_by": "a@b; sh"}, "deployed_by is 'a@b; sh'; expected a person,"),
    ("trainer_tasks", {"tasks": [WORKER | {"begun": "a@b\x1b[2J"}]}, ".begun is 'a@b\\x1b[2J'; expected a"),
    ("trainer_tasks", {"tasks": [WORKER | {"begun": ["x"]}]}, ".begun is ['x']; expected a person"),
    ("trainer_tasks", {"lacks_cuda": 0}, "lacks_cuda is 0; expected true or false"),
    ("trainer_tasks", {"release": "../../root"}, "release is '../../root'; expected a hash"),
    ("trainer_tasks", {"programs": ["0123456789ab", ""] * 5000}, "; expected a list of at most 4096 entries"),
    ("trainer_tasks", {"environment": None}, "environment is None; expected a hash"),
    ("trainer_tasks", {"deployed": []}, "deployed is []; expected an object"),
    ("trainer_tasks", {"stopped": {"worker0": []}}, "stopped['worker0'] is []; expected a whole number >= 0"),
    ("trainer_tasks", {"tasks": ["x"]}, "tasks[0] is 'x'; expected an object"),
    ("trainer_tasks", {"tasks": [{}] * 5000}, "; expected a list of at most 4096 entries"),
    ("host_doctor", {"checks": [{}]}, "checks[0].name is missing"),
    ("host_doctor", {"checks": [CHECK | {"state": "dead"}]}, ".state is 'dead'; expected one of ok"),
    ("host_doctor", {"began": None}, "began is None; expected a number"),
    ("host_doctor", {"ended": float("nan")}, "ended is nan; expected a number"),
    ("host_doctor listening", {"free": ["x"]}, "free[0] is 'x'; expected a whole number >= 0"),
    ("host_doctor listening", {"held": [-1]}, "held[0] is -1; expected a whole number >= 0"),
    ("host_doctor probed", {"names": []}, "names is []; expected an object"),
    ("host_doctor probed", {"names": {"x": "y"}}, "names['x'] is 'y'; expected a list"),
    ("host_doctor probed", {"probes": [{"host": "node2"}]}, "probes[0].ports is missing"),
    ("host_doctor probed", {"probes": [PROBE | {"ports": 1}]}, "probes[0].ports is 1; expected a list"),
    ("host_requirements", {"environment": "../x"}, "environment is '../x'; expected one of cpu-"),
    ("host_requirements", {"system": ["debian"]}, "system is ['debian']; expected an object"),
    ("host_requirements", {"system": {"sshd_service": 7}}, "system['sshd_service'] is 7; expected a text"),
    ("host_requirements", {"python": "/tmp/python3.11"}, "python is '/tmp/python3.11'; expected a Python"),
    ("host_requirements", {"python": "/usr/bin/python3.11;x"}, "x'; expected a Python"),
    ("host_runs", {"runs": {}}, "runs is {}; expected a list"),
    ("host_runs", {"runs": [RUN] * 5000}, "; expected a list of at most 4096 entries"),
    ("host_runs", {"runs": [RUN | {"run_id": "../x"}]}, "runs[0].run_id is '../x'; expected the id of a run"),
    ("host_runs", {"runs": [RUN | {"size": 1e300}]}, "runs[0].size is 1e+300; expected a whole number >= 0"),
    ("host_runs", {"runs": [RUN | {"size": -1}]}, "runs[0].size is -1; expected a whole number >= 0"),
    ("host_runs", {"runs": [RUN | {"changed": None}]}, "runs[0].changed is None; expected a number"),
    ("host_runs", {"runs": [RUN | {"global_step": "1"}]}, "runs[0].global_step is '1'; expected a number"),
    ("host_runs removed", {"freed_bytes": 10**400}, "; expected a whole number >= 0"),
    ("content_release pruned", {"freed_bytes": "all"}, "freed_bytes is 'all'; expected a whole number >= 0"),
    ("carried_files", {"lacking": [-1]}, "lacking[0] is -1; expected a whole number >= 0"),
    ("files", {"failed": "no"}, "failed is 'no'; expected true or false"),
    ("files", {"changed": 1}, "changed is 1; expected true or false"),
    ("files", {"msg": ["x"]}, "msg is ['x']; expected a text"),
    ("files", {"msg": "\ud800"}, "surrogates not allowed"),
    ("files", {"warnings": [{"msg": "x"}]}, "warnings[0] is {'msg': 'x'}; expected a text"),
    ("files", {"warnings": "x"}, "warnings is 'x'; expected a list"),
    ("files", {"diff": "x"}, "diff is 'x'; expected an object, or a list of objects"),
    ("files", {"diff": [{"before": 5}]}, "diff[0]['before'] is 5; expected a text, an object or a list"),
    ("host_runs packed", {"size": True}, "size is True; expected a whole number >= 0"),
    ("content", {"environments": ["../x"]}, "environments[0] is '../x'; expected a hash"),
    ("units", {"up_to_date": 1}, "up_to_date is 1; expected true or false"),
    ("ssh_identity", {"addresses": [1]}, "addresses[0] is 1; expected a text"),
]


@pytest.mark.parametrize(("module", "change", "problem"), INVALID)
def test_an_invalid_answer_is_refused_with_the_name_of_its_field(
    module: str, change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UnusableError) as error:
        looked_at(module, change)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"pid": "x"}, "pid is 'x'; expected a whole number >= 0"),
        ({"exit_code": -1}, "exit_code is -1; expected a whole number >= 0 or null"),
        ({"restarts": 10**400}, f"restarts is 1{'0' * 296}...; expected a whole number >= 0"),
        ({"refused": -1}, "refused is -1; expected a whole number >= 0 or null"),
        ({"bytes_sent": "1"}, "bytes_sent is '1'; expected a whole number >= 0 or null"),
        ({"last_step": {"loss": []}}, "last_step['loss'] is []; expected a number or null"),
        ({"name": "worker1"}, "name is 'worker1', a task that was not asked for"),
        ({"name": "worker1", "index": 1}, "name is 'worker1', a task that was not asked for"),
    ],
)
def test_an_invalid_task_in_an_answer_is_refused_with_the_name_of_its_field(
    change: dict[str, Any], problem: str
) -> None:
    answer = ANSWERS["trainer_tasks"] | {"tasks": [WORKER, WORKER | change]}
    with pytest.raises(UnusableError) as error:
        checked("trainer_tasks", answer, ASKED)
    assert str(error.value) == f"tasks[1].{problem}"


def test_an_answer_may_contain_any_valid_task_if_other_tasks_were_requested() -> None:
    others = {"tasks": [], "others": True, "details": True}
    answer = ANSWERS["trainer_tasks"] | {"tasks": [WORKER | {"name": "server3", "job": "server", "index": 3}]}
    assert checked("trainer_tasks", answer, others) == answer
    answer["tasks"][0] |= {"name": "x3", "job": "x"}
    with pytest.raises(UnusableError, match="not asked for"):
        checked("trainer_tasks", answer, others)


def test_the_hash_of_the_requested_plan_is_accepted_for_the_plan() -> None:
    answer = ANSWERS["trainer_tasks"] | {"deployed": {"hash": PLAN["hash"]}}
    assert checked("trainer_tasks", answer, ASKED | {"plan_hash": PLAN["hash"]}) == answer
    for other in ("", "0" * 12):
        assert checked("trainer_tasks", answer, ASKED | {"plan_hash": other})["deployed"] == {}


@pytest.mark.parametrize("plan", [{"hash": PLAN["hash"]}, PLAN | {"tasks": []}, {}])
def test_an_invalid_plan_counts_as_not_deployed(plan: dict[str, Any]) -> None:
    answer = ANSWERS["trainer_tasks"] | {"deployed": plan}
    assert checked("trainer_tasks", answer, ASKED)["deployed"] == {}


def test_a_long_reason_of_a_host_is_shortened() -> None:
    told = {**ANSWERS["trainer_tasks"], "tasks": [{**WORKER, "reason": exception_in(PRINTED.read_text())}]}
    (worker,) = checked("trainer_tasks", told, ASKED)["tasks"]
    assert worker["reason"] == "NotFoundError: /data/mnist/train.csv; No such file or directory"


@pytest.mark.parametrize("field", ["run_id", "name", "state", "phase", "ended_by", "result"])
def test_a_long_name_that_a_host_tells_is_refused_before_it_is_shown(field: str) -> None:
    ends = {"phase": "", "ended_by": "", "bytes_received": None, "bytes_sent": None}
    told = {**ANSWERS["trainer_tasks"], "tasks": [{**task("worker0"), **ends, field: " " * 20_000}]}
    with pytest.raises(UnusableError, match=rf"tasks\[0\]\.{field} is"):
        checked("trainer_tasks", told, {"tasks": [], "others": True, "details": True})
