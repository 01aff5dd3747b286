"""Hosts with a manipulated Python that returns arbitrary answers."""

import json
import re
import sys
from ast import literal_eval
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.psfleet.report.made_runs import make_plan
from tests.psfleet.run.test_host_answers import ANSWERS, SPECIAL, WORKER
from tests.repository import played, written_play

HONEST = ANSWERS["trainer_tasks"]
LYING = HONEST | {"tasks": [WORKER | {"pid": "x"}]}
# The answer to another module, no object, and an empty one.
HOSTS = {
    name: json.dumps(answer)
    for name, answer in {
        "node0": HONEST,
        "node1": LYING,
        "many": [HONEST, HONEST],
        "other": {"runs": []},
        "none": {},
    }.items()
}
RUNS = [{"run_id": name, "size": 7, "changed": 1.5, "global_step": 3} for name in ("theirs", "../theirs")]
HOSTS |= {
    "keeps": json.dumps({"runs": RUNS[:1]}),
    "leads": json.dumps({"runs": RUNS}),
}
HOSTS |= {"ps-host0": '{"tasks": ' * 100_000 + "1" + "}" * 100_000}
PROBLEM = "its answer to trainer_tasks is damaged: tasks[0].pid is 'x'; expected a whole number >= 0"


def said(folder: Path, *tasks: dict[str, Any], hosts: Mapping[str, str] = HOSTS, **settings: str) -> str:
    """Return Ansible's output for these tasks; each host's Python prints its answer, "" is a real Python."""
    for host, answer in hosts.items():
        (folder / f"{host}.json").write_text(answer)
        (folder / host).write_text(f"#!/bin/sh\n[ -t 0 ] || cat >/dev/null\ncat '{folder}/{host}.json'\n")
        (folder / host).chmod(0o755)
    variables = {"ansible_connection": "local", "cluster_plan": make_plan().to_json()}
    of_hosts = {
        host: {"ansible_python_interpreter": f"{folder}/{host}"} if lie else {} for host, lie in hosts.items()
    }
    (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": of_hosts, "vars": variables}}))
    done = played(written_play(folder, *tasks), "-i", folder / "hosts.yml", **settings)
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    return text


# By `module_stdout` Ansible says that there is no answer.
BELIEVED = {name: value for name, value in SPECIAL.items() if not name.startswith("module_")}
# By Ansible's way its own code reads these first, and stumbles over some.
ODD = ("ansible_facts", "warnings", "deprecations", "exception", "results", "stdout", "failed", "msg", "diff")
LIES: dict[str, dict[str, Any]] = {
    "believed": HONEST | BELIEVED | {"warnings": ["not heeded"]},
    "fails": HONEST | BELIEVED | {"failed": True, "msg": "its own words"},
    "gives-none": HONEST | SPECIAL | {"failed": True, "msg": "its own words"},
    **{f"odd-{name.replace('_', '-')}": HONEST | {name: 5} for name in ODD},
}
HOST = "{{ inventory_hostname }}"
TAKEN = "{{ vars.keys() | intersect(['training_run_hook', 'discovered_interpreter_python']) }}"


@pytest.mark.slow
@pytest.mark.parametrize("pipelining", ["true", pytest.param("false", marks=pytest.mark.chaos)])
def test_hostile_answers_have_no_effect_on_the_controller(tmp_path: Path, pipelining: str) -> None:
    """Both with and without pipelining, and with Ansible's default of injecting facts as variables."""
    hosts = {name: json.dumps(lie) for name, lie in LIES.items()}
    hosts["top"] = json.dumps(LIES["fails"])
    asked = {"tasks": [{"job": "worker", "index": 0}], "paths": {}}
    text = said(
        tmp_path,
        {"psfleet.cluster.trainer_tasks": asked, "register": "told", "ignore_errors": True},
        {"ansible.builtin.debug": {"msg": f"{HOST} has told {{{{ told | sort }}}}"}},
        {"ansible.builtin.debug": {"msg": f"{HOST} has facts {{{{ ansible_facts.keys() | sort }}}}"}},
        {"ansible.builtin.debug": {"msg": f"hosts {{{{ groups }}}} have {TAKEN}"}},
        hosts=hosts,
        ANSIBLE_PIPELINING=pipelining,
        ANSIBLE_INJECT_FACT_VARS="true",
    )
    kept = {"changed", "failed", *HONEST}
    told = {host: set(literal_eval(keys)) for host, keys in re.findall(r"(\S+) has told (.*)", text)}
    assert told.keys() == hosts.keys()
    assert told["believed"] == kept | {"warnings"}
    for host, keys in told.items():
        # An exception is of the controller's own making, and so are warnings where a host has given none.
        taken = keys - {"exception", "warnings"}
        fails = taken == {"changed", "failed", "msg"}
        assert fails or (host.startswith(("believed", "odd")) and taken == kept), host
        assert fails or host.removeprefix("odd-") not in {"warnings", "failed", "msg", "diff"}, host
        assert f"{host} has facts []" in text
    assert "its own words" in text
    names = set(re.findall(r"hosts (.*) have \[\]", text))
    assert len(names) == 1 and json.loads(names.pop().replace("'", '"'))["all"] == [*hosts]


# The facts that the preflight sets for later plays.
FACTS = {
    "cluster_plan": make_plan().to_json(),
    "cluster_settings": {"unchosen": ["one", "other"]},
    "cluster_paths": {},
    "cluster_tasks": {},
}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return Ansible's output for two pages and a module that ask all hosts, in one playbook."""
    pages = [
        {
            "psfleet.cluster.show": {"page": page, "runs_directory": "runs"},
            "run_once": True,
            "vars": FACTS,
            "ignore_errors": True,
        }
        for page in ("status", "runs")
    ]
    return said(
        tmp_path_factory.mktemp("asked"),
        *pages,
        {"psfleet.cluster.trainer_tasks": {"tasks": [{"job": "worker", "index": 0}], "paths": {}}},
        {"ansible.builtin.debug": {"msg": "{{ inventory_hostname }} goes on"}},
    )


@pytest.mark.slow
def test_a_host_with_a_forged_answer_about_its_tasks_fails_and_the_others_continue(asked: str) -> None:
    assert f"FAILED   trainer_tasks: node1\n{PROBLEM}\n" in asked
    assert "ps-host0\nits answer to trainer_tasks is damaged: Ansible cannot read it: RecursionError" in asked
    for host in ("other", "none"):
        assert f"FAILED   trainer_tasks: {host}\nits answer to trainer_tasks is damaged: deployed is" in asked
    assert "FAILED   trainer_tasks: many\ntrainer_tasks gave no answer\n" in asked
    assert [host for host in HOSTS if f"{host} goes on" in asked] == ["node0"]


@pytest.mark.slow
def test_status_names_hosts_with_a_forged_answer_and_shows_the_others(asked: str) -> None:
    assert f"node1 gave no answer: {PROBLEM}" in asked
    assert "ps-host0 gave no answer: its answer" in asked
    assert "3 tasks on 3 hosts: 2 unreachable, 1 running" in asked


@pytest.mark.slow
def test_runs_of_hosts_with_valid_answers_are_shown(asked: str) -> None:
    assert "theirs      3  not here    7 bytes" in asked
    assert "leads gave no answer: its answer to host_runs is damaged: runs[1].run_id" in asked
    assert re.search(r"node0.* gave no answer: its answer to host_runs is damaged: runs is m", asked)
    assert "1 run: 0 here (0 bytes), 1 on 1 host (7 bytes)" in asked


@pytest.mark.slow
def test_a_host_is_not_run_with_the_python_of_another_host(tmp_path: Path) -> None:
    paths = {f"{of}_directory": str(tmp_path) for of in ("configuration", "state", "log")}
    text = said(
        tmp_path,
        {
            "psfleet.cluster.show": {"page": "runs", "runs_directory": "runs"},
            "run_once": True,
            "vars": {"cluster_paths": paths},
        },
        hosts={"node0": HOSTS["none"], "node1": ""},
        ANSIBLE_PYTHON_INTERPRETER=sys.executable,
    )
    assert "node0 gave no answer" in text
    assert "node1 gave no answer" not in text
