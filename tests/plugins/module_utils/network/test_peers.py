"""Hosts' probes of each other, and the findings of doctor.yml."""

import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils.checks.port_checks import TaskPort
from plugins.module_utils.network import peer_probes, peers
from psfleet.run.host_answers import checked
from psfleet.watch.peer_findings import peer_checks
from tests.networks import Networks

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes networks")

ADDRESSES = {
    "one": ("10.79.0.1", "fd79::1"),
    "two": ("10.79.0.2", "fd79::2"),
    "three": ("10.79.0.3", "fd79::3"),
}
TASKS = [
    {"job": "ps", "index": 0, "host": "one", "address": "10.79.0.1", "port": 2222},
    {"job": "worker", "index": 0, "host": "one", "address": "10.79.0.1", "port": 2223},
    {"job": "worker", "index": 1, "host": "two", "address": "10.79.0.2", "port": 2222},
    {"job": "worker", "index": 2, "host": "three", "address": "10.79.0.3", "port": 2222},
]


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Networks]:
    monkeypatch.setattr(peer_probes, "SECONDS_TO_CONNECT", 2.0)
    made = Networks(ADDRESSES)
    try:
        yield made
    finally:
        made.close()


def taken(state: str, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer as Ansible brings it to the controller."""
    return checked("host_doctor", json.loads(json.dumps(answer)), {"state": state})


def end(listener: dict[str, Any]) -> None:
    """End a listener that has a name of its own: until then it handles signals as this process does."""
    while Path(f"/proc/{listener['pid']}/comm").read_text() != f"{peer_probes.LISTENER}\n":
        time.sleep(0.01)
    assert peer_probes.end_listener(**listener)
    os.waitpid(listener["pid"], 0)


def doctor(networks: Networks) -> dict[str, list[tuple[str, str]]]:
    """Run the steps of doctor.yml, and return state and finding of each host's checks."""
    values = {host: {"host": host, "tasks": TASKS, "seconds": 60} for host in ADDRESSES}
    listening: dict[str, dict[str, Any]] = {}
    answers: dict[str, dict[str, Any]] = {}
    for host in ADDRESSES:
        with networks.inside(host):
            listening[host] = taken("listening", peers.listen(values[host]))
    for host in ADDRESSES:
        with networks.inside(host):
            probed = taken("probed", peers.probe_peers(values[host]))
            answers[host] = {"listening": listening[host], "probed": probed}
    for host, answer in answers.items():
        end(answer["listening"]["listener"])
        answers[host] = {"problem": "", "deployed": "", "fence": True, "mesh": 0, "peers": answer}
    checks = peer_checks({"tasks": TASKS}, answers)
    return {host: [(check.state, check.found) for check in found] for host, found in checks.items()}


def test_hosts_that_reach_each_other_pass(networks: Networks) -> None:
    assert doctor(networks) == {
        "one": [("ok", "reaches 2 of 2 ports of 2 other hosts, and is reached")],
        "two": [("ok", "reaches 3 of 3 ports of 2 other hosts, and is reached")],
        "three": [("ok", "reaches 3 of 3 ports of 2 other hosts, and is reached")],
    }


def test_an_obstacle_is_reported_at_the_host_that_has_it(networks: Networks) -> None:
    rules = (
        "table inet other { chain input { type filter hook input priority 0; tcp dport 2223 drop; }; }",
        "table ip other { chain nat { type nat hook postrouting priority 0; "
        "ip daddr 10.79.0.1 snat to 10.79.0.9; }; }",
    )
    networks.run("ip", "address", "add", "10.79.0.9/24", "dev", "eth0", at="three")
    for host, text in zip(("one", "three"), rules, strict=True):
        networks.run("nft", text, at=host)
    comes = "it comes from 10.79.0.9, and the plan has 10.79.0.3: a fence there refuses that"
    assert doctor(networks) == {
        "one": [("failed", "from every other host to port 2223: no answer within 5 s")],
        "two": [("ok", "reaches 2 of 3 ports of 2 other hosts, and is reached")],
        "three": [("failed", f"to one at port 2222: {comes}")],
    }


def test_the_doctor_does_not_listen_at_the_port_of_a_running_task(
    networks: Networks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def running(ports: Sequence[TaskPort]) -> dict[str, int]:
        return {unit: 0 for port in ports for unit in port.units if unit == "psfleet-ps@0.service"}

    monkeypatch.setattr(peers, "running_units", running)
    found = doctor(networks)
    assert found["two"] == [("ok", "reaches 2 of 2 ports of 2 other hosts, and is reached")], "not up yet"
    with networks.listen("one", 2222):
        found = doctor(networks)
    assert found["two"] == [("ok", "reaches 3 of 3 ports of 2 other hosts, and is reached")]


def test_a_port_that_another_process_would_share_counts_as_held(networks: Networks) -> None:
    with networks.inside("one"), socket.create_server(("", 2222), reuse_port=True):
        found = peers.listen({"host": "one", "tasks": TASKS, "seconds": 60})
    end(found["listener"])
    assert (found["free"], found["held"]) == ([2223], [2222])


def test_a_listener_ends_when_a_run_starts(networks: Networks, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[None] = []

    def running(ports: Sequence[TaskPort]) -> dict[str, int]:
        looks.append(None)
        return {} if len(looks) == 1 else {unit: 0 for port in ports for unit in port.units}

    monkeypatch.setattr(peers, "running_units", running)
    with networks.inside("one"):
        listener = peers.listen({"host": "one", "tasks": TASKS, "seconds": 9})["listener"]
    _, status = os.waitpid(listener["pid"], 0)
    assert not os.WIFSIGNALED(status), "it has not waited for its own end"
    assert networks.tried("two", "10.79.0.1", 2222) == "ConnectionRefusedError"
    assert not peer_probes.end_listener(**listener), "which host_doctor tells"
