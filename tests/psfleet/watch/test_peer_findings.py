from typing import Any

import pytest

from plugins.module_utils.network.peer_probes import ANSWERED, OPEN, REFUSED, SILENT, UNKNOWN
from psfleet.watch.doctor_findings import Findings
from psfleet.watch.peer_findings import peer_checks
from tests.psfleet.watch.test_doctor_findings import answer as doctor_answer

PORT = 2222
Answers = dict[str, dict[str, Any]]


def host(number: int) -> str:
    return f"node{number}"


def address(number: int) -> str:
    return f"10.0.0.{number}"


def cluster(size: int) -> Answers:
    """Return the answers of a cluster of this size in which each host reaches all others."""
    numbers = range(1, size + 1)
    return {
        host(own): {
            "problem": "",
            "deployed": "",
            "fence": True,
            "mesh": 0,
            "peers": {
                "listening": {"machine": f"machine{own}", "free": [PORT], "held": [], "listener": {}},
                "probed": {
                    "names": {},
                    "probes": [probe(own, other) for other in numbers if other != own],
                },
            },
        }
        for own in numbers
    }


def probe(own: int, other: int) -> dict[str, Any]:
    return {
        "host": host(other),
        "ports": [PORT],
        "outcome": ANSWERED,
        "source": address(own),
        "name": host(other),
        "machine": f"machine{other}",
    }


def change(answers: Answers, own: int, other: int, **changes: object) -> None:
    for found in answers[host(own)]["peers"]["probed"]["probes"]:
        if found["host"] == host(other):
            found.update(changes)


def plan(size: int) -> dict[str, Any]:
    return {"tasks": [{"host": host(number), "address": address(number)} for number in range(1, size + 1)]}


def wrong(answers: Answers, size: int = 0) -> dict[str, list[str]]:
    """Return the findings of failed checks, by host."""
    checks = peer_checks(plan(size or len(answers)), answers)
    assert set(checks) <= set(answers)
    return {
        name: [check.found for check in found] for name, found in checks.items() if found[0].state == "failed"
    }


def remedies(answers: Answers) -> str:
    return " | ".join(
        check.remedy for found in peer_checks(plan(len(answers)), answers).values() for check in found
    )


def test_all_hosts_pass_if_all_ports_are_reached() -> None:
    answers = cluster(3)
    answers["node1"]["peers"]["listening"]["free"] = [PORT, 2223]
    for own in (2, 3):
        change(answers, own, 1, ports=[PORT, 2223])
    found = {name: checks[0] for name, checks in peer_checks(plan(3), answers).items()}
    assert {check.state for check in found.values()} == {"ok"}
    assert found["node1"].found == "reaches 2 of 2 ports of 2 other hosts, and is reached"
    assert found["node2"].found == "reaches 3 of 3 ports of 2 other hosts, and is reached"


def test_an_unreached_host_is_reported_once_and_a_single_connection_at_its_source() -> None:
    answers = cluster(300)
    for own in range(1, 301):
        change(answers, own, 7, outcome=SILENT)
    for other in range(100, 130):
        change(answers, 4, other, outcome=SILENT)
    found = wrong(answers)
    assert found == {
        "node7": ["from every other host to port 2222: no answer within 5 s"],
        "node4": [
            "to node100 at port 2222, node101 at port 2222, node102 at port 2222, node103 at port 2222, "
            "node104 at port 2222 and 25 more: no answer within 5 s"
        ],
    }
    assert "a cloud's security group" in remedies(answers)


def test_hosts_that_do_not_reach_a_host_are_named_at_that_host() -> None:
    answers = cluster(9)
    for own in range(2, 9):
        change(answers, own, 1, outcome=REFUSED)
    words = "from node2, node3, node4, node5, node6 and 2 more to port 2222: refused"
    assert wrong(answers) == {"node1": [words]}
    found = peer_checks(plan(9), answers)["node2"]
    assert [(check.state, check.found) for check in found] == [
        ("ok", "reaches 7 of 8 ports of 8 other hosts, and is reached")
    ]


def test_two_hosts_report_a_broken_connection() -> None:
    answers = cluster(2)
    change(answers, 1, 2, outcome="no route to host")
    assert wrong(answers) == {"node2": ["from node1 to port 2222: no route to host"]}
    assert "no route leads there" in remedies(answers)


def test_unreached_ports_of_a_host_are_named_together() -> None:
    answers = cluster(3)
    answers["node1"]["peers"]["listening"] |= {"free": [PORT, 2223, 2224], "held": [2225]}
    for own in (2, 3):
        refused = probe(own, 1) | {"ports": [2224, 2225], "outcome": REFUSED}
        answers[host(own)]["peers"]["probed"]["probes"].append(refused)
    assert wrong(answers) == {"node1": ["from every other host to ports 2224, 2225: refused"]}


@pytest.mark.parametrize(("deployed", "words"), [("", "rejects it"), ("2.21.0", "deploy.yml` on all hosts")])
def test_a_fence_is_named_as_the_cause_only_if_one_is_deployed(deployed: str, words: str) -> None:
    answers = cluster(3)
    answers["node1"]["deployed"] = deployed
    change(answers, 2, 1, outcome=REFUSED)
    assert wrong(answers) == {"node2": ["to node1 at port 2222: refused"]}
    assert words in remedies(answers)
    assert ("fence" in remedies(answers)) == bool(deployed)


def test_a_silent_peer_in_a_mesh_gives_advice_about_the_port_of_the_mesh() -> None:
    answers = cluster(3)
    for answer in answers.values():
        answer["mesh"] = 51820
    change(answers, 2, 1, outcome=SILENT)
    assert wrong(answers) == {"node2": ["to node1 at port 2222: no answer within 5 s"]}
    assert "UDP port 51820" in remedies(answers)
    change(answers, 2, 1, outcome=REFUSED)
    assert "UDP" not in remedies(answers)


def test_a_source_address_other_than_the_plans_is_reported() -> None:
    answers = cluster(3)
    for other in (1, 3):
        change(answers, 2, other, source="::ffff:10.0.9.7")
    words = "it comes from 10.0.9.7, and the plan has 10.0.0.2"
    places = "to node1 at port 2222, node3 at port 2222: "
    assert wrong(answers) == {"node2": [f"{places}{words}: a fence there refuses that"]}
    assert "network address translation" in remedies(answers)
    assert "trainer_address of this host" in remedies(answers)
    for other in (1, 3):
        change(answers, 2, other, outcome=REFUSED)
    assert wrong(answers) == {"node2": [f"{places}refused; {words}"]}
    for other in (1, 3):
        answers[host(other)]["fence"] = False
        change(answers, 2, other, outcome=ANSWERED)
    assert not wrong(answers), "without a fence nobody asks"


def test_a_source_address_is_compared_with_the_name_as_the_other_host_resolves_it() -> None:
    answers, names = cluster(2), plan(2)
    names["tasks"][1]["address"] = "two.example"
    assert not any(check.state == "failed" for check in peer_checks(names, answers)["node2"]), "not known"
    answers["node1"]["peers"]["probed"]["names"] = {"two.example": ["fd00::2", "10.0.0.2"]}
    assert not any(check.state == "failed" for check in peer_checks(names, answers)["node2"])
    answers["node1"]["peers"]["probed"]["names"] = {"two.example": ["10.0.0.8", "127.0.1.1"]}
    assert "and the plan has two.example" in peer_checks(names, answers)["node2"][0].found


def test_a_loopback_source_address_is_accepted_on_one_machine() -> None:
    answers = cluster(2)
    change(answers, 1, 2, source="127.0.0.1")
    assert not wrong(answers)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"machine": "machine7", "name": "node7"},
            "another machine answers, and its name is node7",
        ),
        ({"outcome": OPEN}, "something else answers"),
        ({"outcome": UNKNOWN, "source": ""}, "the name is not found"),
    ],
)
def test_a_wrong_process_or_machine_behind_an_address_is_reported(
    changes: dict[str, str], words: str
) -> None:
    answers = cluster(3)
    change(answers, 2, 1, **changes)
    assert wrong(answers) == {"node2": [f"to node1 at port 2222: {words}"]}


def test_a_port_in_use_only_has_to_accept_connections() -> None:
    answers = cluster(2)
    answers["node1"]["peers"]["listening"] |= {"free": [], "held": [PORT]}
    change(answers, 2, 1, outcome=OPEN)
    assert not wrong(answers)
    change(answers, 2, 1, outcome=SILENT)
    assert wrong(answers) == {"node1": ["from node2 to port 2222: no answer within 5 s"]}


def test_ports_without_a_listener_and_hosts_without_an_answer_are_not_judged() -> None:
    answers = cluster(3)
    answers["node1"]["peers"]["listening"]["free"] = []
    answers["node2"] |= {"problem": "could not log in", "peers": {}}
    for other in (1, 2):
        change(answers, 3, other, outcome=REFUSED)
    change(answers, 1, 2, outcome=SILENT)
    found = peer_checks(plan(3), answers)
    assert [(check.state, check.found) for check in found["node3"]] == [
        ("skipped", "no other host was tried")
    ]
    assert found["node1"][0].found == "reaches 1 of 1 port of 1 other host, and is reached"
    assert set(found) == {"node1", "node3"}


def test_hosts_without_probes_have_no_findings() -> None:
    answers: Answers = {"node1": {"problem": "", "deployed": "", "peers": {}}, "node2": {}}
    assert not peer_checks(plan(2), answers)


def test_the_table_has_a_column_for_peers_and_a_note_about_hosts_left_out() -> None:
    answers = cluster(2)
    for name in answers:
        answers[name] = doctor_answer(**{**answers[name], "deployed": "2.21.0"})
    change(answers, 1, 2, outcome=SILENT, source="10.0.9.9\x1b[2J")
    findings = Findings.of(plan(3), answers)
    assert findings.names[8:10] == ("ports", "peers")
    assert findings.rows[1].state("peers") == "failed"
    assert findings.troubles[0].name == "peers"
    assert findings.notes[-1] == (
        "Left out by --limit: node3. Connections between these and the other hosts were not tried."
    )
