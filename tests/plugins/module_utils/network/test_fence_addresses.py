"""The fence at every address that a host has, and translated ones: only the plan's are a way to a task."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from plugins.module_utils.network import fence_state
from plugins.module_utils.network.fence_rules import Endpoint
from tests.networks import Networks
from tests.plugins.module_utils.network.fenced_networks import (
    APART,
    BESIDE,
    FENCE,
    HERE,
    OTHER,
    OWN,
    PEER,
    PORT,
    ROOT,
    SOMEBODY,
    SSH,
    STRANGER,
    TASKS,
    put_up,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes networks")


def ways(networks: Networks, origin: str, target: str) -> list[tuple[str, str]]:
    """Each pair of a source of one machine, and an address of another that is reached from it."""
    sources, addresses = networks.addresses(origin), networks.addresses(target)
    assert len(sources) >= 3
    assert len(addresses) == 7
    return [(source, to) for source in sources for to in addresses if (":" in source) == (":" in to)]


def test_a_task_is_reached_from_the_plans_addresses_at_the_plans_addresses_alone(fenced: Networks) -> None:
    """A user of the peer may choose any source; its own fence knows no other address of this host."""
    for origin, allowed in (("peer", PEER), ("stranger", ())):
        for source, address in ways(fenced, origin, "here"):
            expected = "open" if source in allowed and address in HERE else "ConnectionRefusedError"
            assert fenced.tried(origin, address, PORT, source=source) == expected, (origin, source, address)
            assert fenced.tried(origin, address, OTHER, source=source) == "open", "not ours to close"


def test_no_other_user_of_a_host_of_the_plan_reaches_a_task_there_or_elsewhere(
    fenced: Networks, tmp_path: Path
) -> None:
    put_up(fenced, tmp_path / "peer.nft", replace(FENCE, host="there", own=PEER), at="peer")
    try:
        for source, address in ways(fenced, "here", "peer"):
            for user in (SOMEBODY, TASKS, ROOT):
                allowed = user != SOMEBODY and source in HERE and address in PEER
                found = fenced.tried("here", address, PORT, user, source=source)
                assert (found == "open") == allowed, (user, source, address)
        for address in (*OWN, *fenced.addresses("here")):
            for user in (SOMEBODY, TASKS, ROOT):
                found = fenced.tried("here", address, PORT, user)
                assert found == ("ConnectionRefusedError" if user == SOMEBODY else "open"), (user, address)
        with fenced.inside("peer"):
            assert fence_state.refused_connections()[PORT] > 0, "at its other addresses"
    finally:
        fenced.run("nft", "flush", "ruleset", at="peer")


@pytest.mark.parametrize("name", ["plain", "loopback", "all", "translated"])
def test_a_host_is_reached_at_the_address_that_the_others_know(
    networks: Networks, rules: Path, name: str
) -> None:
    """Whatever it knows of its own name: Debian has 127.0.1.1, nss-myhostname each address that it has."""
    known = {
        "plain": HERE,
        "loopback": ("127.0.1.1", "::1"),
        "all": (*HERE, *BESIDE["here"], *APART["here"], "fe80::1"),
        "translated": ("192.0.2.1", "2001:db8::1"),
    }
    tasks = (Endpoint("here", "here.example", PORT), Endpoint("there", "peer.example", PORT))
    asked = replace(FENCE, tasks=tasks, names={**FENCE.names, "here.example": known[name]}, own=())
    with networks.inside("here"):
        own = fence_state.own_addresses(asked)
    assert set(own) == {*HERE, *(known[name] if name == "translated" else ())}
    put_up(networks, rules, replace(asked, own=own))
    for source, address in ways(networks, "peer", "here"):
        expected = "open" if source in PEER and address in HERE else "ConnectionRefusedError"
        assert networks.tried("peer", address, PORT, source=source) == expected, (source, address)
    assert networks.tried("here", APART["here"][0], PORT, SOMEBODY) == "ConnectionRefusedError"


@pytest.mark.parametrize(
    ("names", "own"),
    [
        (("127.0.1.1",), ("10.77.0.1",)),  # the others may know no IPv6 address of it
        ((BESIDE["here"][0],), (BESIDE["here"][0],)),
        ((*APART["here"], HERE[0]), (APART["here"][1], HERE[0])),
        ((HERE[0], "fe80::1", "127.0.1.1"), (HERE[0],)),
    ],
)
def test_of_the_addresses_of_an_own_name_those_are_taken_from_which_it_sends(
    networks: Networks, names: tuple[str, ...], own: tuple[str, ...]
) -> None:
    tasks = (Endpoint("here", "here.example", PORT), Endpoint("there", "peer.example", PORT))
    asked = replace(FENCE, tasks=tasks, names={**FENCE.names, "here.example": names}, own=())
    with networks.inside("here"):
        assert set(fence_state.own_addresses(asked)) == set(own)
        by_number = replace(asked, tasks=(Endpoint("here", HERE[0], PORT), tasks[1]))
        assert fence_state.own_addresses(by_number) == (HERE[0],)
        absent = "[fd00::9]"
        meshed = replace(asked, tasks=(Endpoint("here", absent, PORT), tasks[1]), mesh="psfleet")
        assert fence_state.own_addresses(meshed) == ("fd00::9",), "before there is the interface"


@pytest.mark.parametrize("family", [0, 1])
def test_a_port_or_address_that_a_host_translates_is_no_way_to_a_task(fenced: Networks, family: int) -> None:
    """Such as a port of a container that is published, or a service of Kubernetes."""
    ip, places = ("ip", "ip6")[family], {"in": HERE[family], "out": BESIDE["here"][family]}
    chains = [
        "add table inet nat",
        "add chain inet nat in { type nat hook prerouting priority -100; }",
        "add chain inet nat out { type nat hook output priority -100; }",
    ]
    for hook, address in places.items():
        for port, to in ((8080, PORT), (8022, SSH)):
            place = f"[{address}]:{to}" if family else f"{address}:{to}"
            chains.append(f"add rule inet nat {hook} tcp dport {port} dnat {ip} to {place}")
    fenced.run("nft", "; ".join(chains), at="here")
    try:
        for origin, user in (("peer", ROOT), ("stranger", ROOT), ("here", SOMEBODY)):
            address = STRANGER[family] if origin == "here" else HERE[family]
            assert fenced.tried(origin, address, 8022, user) == "open"
            assert fenced.tried(origin, address, 8080, user) == "ConnectionRefusedError", origin
    finally:
        fenced.run("nft", "delete table inet nat", at="here")


def test_a_loopback_address_that_is_routed_from_outside_is_no_way_to_a_task(fenced: Networks) -> None:
    """Kubernetes and Docker set route_localnet."""
    fenced.run("ip", "route", "add", "127.5.5.5", "via", HERE[0], "table", "local", at="peer")
    for name in ("here", "peer"):
        fenced.run("sysctl", "--quiet", "--write", "net.ipv4.conf.eth0.route_localnet=1", at=name)
    try:
        assert fenced.tried("peer", "127.5.5.5", SSH, source=PEER[0]) == "open"
        assert fenced.tried("peer", "127.5.5.5", PORT, source=PEER[0]) == "ConnectionRefusedError"
    finally:
        fenced.run("ip", "route", "delete", "127.5.5.5", "table", "local", at="peer")
