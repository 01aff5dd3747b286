"""The probes among hosts: real packets between networks of their own, through real rules of nft."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from plugins.module_utils.network import peer_probes
from plugins.module_utils.network.fence_rules import Endpoint, Fence, ruleset
from plugins.module_utils.network.peer_probes import (
    ANSWERED,
    OPEN,
    REFUSED,
    SILENT,
    UNKNOWN,
    Peer,
    ProbeResult,
)
from tests.networks import Networks

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes networks")

HERE, THERE = ("10.78.0.1", "fd78::1"), ("10.78.0.2", "fd78::2")
SECOND = "10.78.0.9"
PORT, HELD = 2222, 2223


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an answer come as late as a busy machine has it come."""
    monkeypatch.setattr(peer_probes, "SECONDS_TO_CONNECT", 60.0)
    monkeypatch.setattr(peer_probes, "SECONDS_TO_GREET", 60.0)


@contextmanager
def silence(monkeypatch: pytest.MonkeyPatch, limit: str) -> Iterator[None]:
    """Shorten the wait for an answer that never comes."""
    with monkeypatch.context() as own:
        own.setattr(peer_probes, limit, 0.5)
        yield


@pytest.fixture
def networks() -> Iterator[Networks]:
    made = Networks({"here": HERE, "there": THERE})
    try:
        yield made
    finally:
        made.close()


@contextmanager
def listening(
    networks: Networks, *ports: int, seconds: int = 60, is_over: Callable[[], bool] = lambda: False
) -> Iterator[dict[str, Any]]:
    """Have a listener in the network `here`."""
    with networks.inside("here"):
        servers = list(peer_probes.listen_on(ports).values())
        listener = peer_probes.fork_listener(servers, "here", seconds, is_over)
    try:
        yield listener
    finally:
        peer_probes.end_listener(**listener)
        os.waitpid(listener["pid"], 0)


def probed(networks: Networks, address: str = HERE[0], port: int = PORT) -> ProbeResult:
    with networks.inside("there"):
        return peer_probes.probe(Peer("here", address, port))


def rule(networks: Networks, at: str, hook: str, text: str) -> None:
    kind = "nat" if "snat" in text else "filter"
    networks.run("nft", "add", "table", "inet", "other", at=at)
    chain = f"{{ type {kind} hook {hook} priority 0; }}"
    networks.run("nft", "add", "chain", "inet", "other", hook, chain, at=at)
    networks.run("nft", "add", "rule", "inet", "other", hook, *text.split(), at=at)


def ends(pid: int, born: str) -> bool:
    deadline = time.monotonic() + 10
    while peer_probes._born(pid) == born and time.monotonic() < deadline:
        time.sleep(0.05)
    return peer_probes._born(pid) != born


@pytest.mark.parametrize(("address", "source"), [*zip(HERE, THERE, strict=True), ("[fd78::1]", THERE[1])])
def test_a_listener_sends_its_identity_and_the_address_of_its_client(
    networks: Networks, address: str, source: str
) -> None:
    with networks.inside("here"):
        machine = peer_probes.this_machine()
    with networks.inside("there"):
        assert peer_probes.this_machine() != machine
    with listening(networks, PORT):
        found = probed(networks, address)
    assert (found.outcome, found.name, found.machine) == (ANSWERED, "here", machine)
    assert found.source.removeprefix("::ffff:") == source


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("tcp dport 2222 drop", SILENT),
        ("tcp dport 2222 reject with tcp reset", REFUSED),
        ("tcp dport 2222 reject with icmpx admin-prohibited", "no route to host"),
    ],
)
def test_a_dropped_and_a_rejected_packet_have_different_outcomes(
    networks: Networks, monkeypatch: pytest.MonkeyPatch, text: str, outcome: str
) -> None:
    rule(networks, "here", "input", text)
    with listening(networks, PORT, HELD):
        with silence(monkeypatch, "SECONDS_TO_CONNECT") if outcome == SILENT else nullcontext():
            assert probed(networks) == ProbeResult(outcome, THERE[0])
        assert probed(networks, port=HELD).outcome == ANSWERED


def test_a_translated_address_is_reported_as_the_listener_sees_it(networks: Networks) -> None:
    networks.run("ip", "address", "add", f"{SECOND}/24", "dev", "eth0", at="there")
    rule(networks, "there", "postrouting", f"ip daddr {HERE[0]} snat ip to {SECOND}")
    with listening(networks, PORT):
        assert probed(networks).source == f"::ffff:{SECOND}"


def test_the_fence_lets_a_host_of_the_plan_reach_the_listener_and_refuses_its_second_address(
    networks: Networks,
) -> None:
    tasks = (Endpoint("here", HERE[0], PORT), Endpoint("there", THERE[0], PORT))
    networks.run("nft", ruleset(Fence("here", "tasks", tasks, uid=61001, own=(HERE[0],))), at="here")
    with listening(networks, PORT):
        assert probed(networks).outcome == ANSWERED
        networks.run("ip", "address", "add", f"{SECOND}/24", "dev", "eth0", at="there")
        networks.run("ip", "route", "add", HERE[0], "dev", "eth0", "src", SECOND, at="there")
        assert probed(networks) == ProbeResult(REFUSED, SECOND)


def test_a_port_in_use_is_left_to_its_holder_and_counts_as_open(
    networks: Networks, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = networks.listen("here", HELD)
    with server, networks.inside("here"):
        free = peer_probes.listen_on([PORT, HELD])
        assert list(free) == [PORT]
        free[PORT].close()
        with silence(monkeypatch, "SECONDS_TO_GREET"):
            assert probed(networks, port=HELD) == ProbeResult(OPEN, THERE[0])
        connection, _ = server.accept()
        assert connection.recv(10) == b"", "nothing is said to it"
        connection.close()


def test_an_unknown_name_is_reported_as_unknown() -> None:
    assert peer_probes.probe(Peer("here", "nobody.invalid", PORT)) == ProbeResult(UNKNOWN)


def test_an_ended_listener_leaves_its_ports_free(networks: Networks, monkeypatch: pytest.MonkeyPatch) -> None:
    # A fork of these tests, which gives way to all others, takes as long to die as a busy machine lets it.
    monkeypatch.setattr(peer_probes, "SECONDS_TO_END", 60.0)
    with listening(networks, PORT) as listener:
        with networks.inside("there"):
            (found,) = peer_probes.probe_all([Peer("here", HERE[0], PORT)] * 200)
        assert found["outcome"] == ANSWERED
        assert peer_probes.end_listener(**listener)
        assert probed(networks).outcome == REFUSED
        assert not peer_probes.end_listener(**listener)
        assert not networks.run("ss", "--no-header", "--tcp", "--all", "--numeric", at="here")


def test_a_listener_ends_after_its_time_or_when_its_work_is_over(networks: Networks) -> None:
    with listening(networks, PORT, seconds=1) as listener:
        assert ends(**listener)
    with listening(networks, PORT, is_over=lambda: True) as listener:
        assert ends(**listener)


def test_simultaneous_doctors_listen_at_the_same_port(networks: Networks) -> None:
    with listening(networks, PORT) as first, listening(networks, PORT):
        peer_probes.end_listener(**first)
        assert probed(networks).outcome == ANSWERED


def test_ports_with_the_same_outcome_are_reported_together(networks: Networks) -> None:
    with listening(networks, PORT, HELD), networks.inside("there"):
        ports = (PORT, 2225, HELD)
        (answered, refused) = peer_probes.probe_all([Peer("here", HERE[0], port) for port in ports])
    assert (answered["host"], answered["ports"], answered["outcome"]) == ("here", [PORT, HELD], ANSWERED)
    assert (refused["ports"], refused["outcome"], refused["source"]) == ([2225], REFUSED, THERE[0])
