"""Hosts whose Python is their own: it answers what it likes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.psfleet.report.made_runs import make_plan
from tests.psfleet.run.test_host_answers import ANSWERS, WORKER
from tests.repository import played, written_play

HONEST = ANSWERS["trainer_tasks"]
LYING = HONEST | {"tasks": [WORKER | {"pid": "x"}]}
# A list of another length than asked for, something else, and nothing.
HOSTS = {
    name: json.dumps({"answers": answers})
    for name, answers in {
        "node0": [HONEST],
        "node1": [LYING],
        "many": [HONEST, HONEST],
        "other": HONEST,
        "none": [],
    }.items()
}
RUNS = [{"run_id": name, "size": 7, "changed": 1.5, "global_step": 3} for name in ("theirs", "../theirs")]
HOSTS |= {
    "keeps": json.dumps({"answers": [{"runs": RUNS[:1]}]}),
    "leads": json.dumps({"answers": [{"runs": RUNS}]}),
}
HOSTS |= {"ps-host0": '{"a":' * 100_000 + "1" + "}" * 100_000}
PROBLEM = "its answer to psfleet.cluster.trainer_tasks is damaged: tasks[0].pid is 'x', which it cannot be"


def said(folder: Path, *tasks: dict[str, Any]) -> str:
    """What Ansible says of these tasks on the hosts."""
    for host, answer in HOSTS.items():
        (folder / f"{host}.json").write_text(answer)
        (folder / host).write_text(f"#!/bin/sh\ncat >/dev/null\ncat '{folder}/{host}.json'\n")
        (folder / host).chmod(0o755)
    variables = {"ansible_connection": "local", "cluster_plan": make_plan().to_json()}
    hosts = {host: {"ansible_python_interpreter": f"{folder}/{host}"} for host in HOSTS}
    (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts, "vars": variables}}))
    done = played(written_play(folder, *tasks), "-i", folder / "hosts.yml")
    text = done.stdout + done.stderr
    assert "Traceback" not in text
    return text


@pytest.mark.slow
def test_a_host_that_lies_of_its_tasks_fails_and_the_others_go_on(tmp_path: Path) -> None:
    asked = {"tasks": [{"job": "worker", "index": 0}], "paths": {}}
    text = said(
        tmp_path,
        {"psfleet.cluster.trainer_tasks": asked},
        {"ansible.builtin.debug": {"msg": "{{ inventory_hostname }} goes on"}},
    )
    assert f"FAILED   trainer_tasks: node1\n{PROBLEM}\n" in text
    assert "ps-host0\nits answer to psfleet.cluster.trainer_tasks is damaged: maximum recursion" in text
    for host in ("many", "other", "none"):
        assert (
            f"FAILED   trainer_tasks: {host}\nits answer to psfleet.cluster.trainer_tasks is damaged: it is"
            in text
        )
    assert [host for host in HOSTS if f"{host} goes on" in text] == ["node0"]


@pytest.mark.slow
def test_status_says_which_host_lies_and_shows_the_others(tmp_path: Path) -> None:
    answers = (
        "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'told'))) }}"
    )
    text = said(
        tmp_path,
        {"psfleet.cluster.host_status": {"tasks": [], "paths": {}}, "register": "told"},
        {"psfleet.cluster.show_status": {"answers": answers, "runs_directory": "runs"}, "run_once": True},
    )
    assert f"node1 gave no answer: {PROBLEM}" in text
    assert "ps-host0 gave no answer: its answer" in text
    assert "3 tasks on 3 hosts: 2 unreachable, 1 running" in text


@pytest.mark.slow
def test_runs_are_shown_of_hosts_that_do_not_lie(tmp_path: Path) -> None:
    answers = (
        "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'told'))) }}"
    )
    text = said(
        tmp_path,
        {"psfleet.cluster.host_runs": {"paths": {}}, "register": "told"},
        {"psfleet.cluster.show_runs": {"answers": answers, "runs_directory": "runs"}, "run_once": True},
    )
    assert "theirs      3  not here    7 bytes" in text
    assert "leads gave no answer: its answer to psfleet.cluster.host_runs is damaged: runs[1].run_id" in text
    assert re.search(
        r"node0.* gave no answer: its answer to psfleet.cluster.host_runs is damaged: runs is m", text
    )
    assert "1 run: 0 here (0 bytes), 1 on 1 host (7 bytes)" in text
