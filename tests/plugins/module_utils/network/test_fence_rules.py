"""The rules of a fence as text; test_fence_packets.py tests their effect on packets."""

import json
import re
from dataclasses import replace

import pytest

from plugins.module_utils.network.fence_rules import Endpoint, Fence, ruleset, to_ip, to_reach, unit_drop_in

PLAN = (
    Endpoint("a", "10.0.0.1", 2222),
    Endpoint("a", "10.0.0.1", 2223),
    Endpoint("b", "[fd00::2]", 2222),
    Endpoint("c", "cee", 2300),
)
NAMES = {"cee": ("10.0.0.3", "fd00::3"), "store": ("192.0.2.7",)}
FENCE = Fence("a", "psfleet", PLAN, (), 998, NAMES, ("10.0.0.53", "fe80::53"), ("10.0.0.1",))


def sets(fence: Fence) -> dict[str, set[str]]:
    """What each set of the rules holds."""
    found = re.findall(r"set (\w+) \{ type [^;]*; (?:elements = \{ (.*) \})? \}", ruleset(fence))
    return {name: set(elements.split(", ")) - {""} for name, elements in found}


def asked(fence: Fence) -> list[str]:
    """Where its tasks may ask for names."""
    return re.findall(r"daddr (\S+) meta l4proto \{ tcp, udp \} th dport 53 accept", ruleset(fence))


def test_the_sets_of_the_rules_hold_the_ports_and_addresses_of_the_plan() -> None:
    assert sets(FENCE) == {
        "ports": {"2222", "2223"},
        "hosts4": {"10.0.0.1", "10.0.0.3"},
        "hosts6": {"fd00::2", "fd00::3"},
        "tasks4": {"10.0.0.1 . 2222", "10.0.0.1 . 2223", "10.0.0.3 . 2300"},
        "tasks6": {"fd00::2 . 2222", "fd00::3 . 2300"},
    }
    assert sets(replace(FENCE, host="c"))["ports"] == {"2300"}
    assert ruleset(FENCE).count("meta skuid 998 goto tasks") == 1


def test_the_rules_of_a_single_host_contain_only_its_own_address() -> None:
    alone = sets(replace(FENCE, tasks=PLAN[:2], names={}))
    assert (alone["hosts4"], alone["hosts6"], alone["tasks6"]) == ({"10.0.0.1"}, set(), set())
    own = Fence("here", "psfleet", (Endpoint("here", "127.0.0.1", 2222),))
    assert [*map(len, sets(own).values())] == [1, 0, 0, 0, 0]


def test_the_sets_hold_the_addresses_at_which_a_host_is_reached_instead_of_its_own_name() -> None:
    found = sets(replace(FENCE, host="c", own=("10.0.0.9",)))
    assert found["tasks4"] == {"10.0.0.1 . 2222", "10.0.0.1 . 2223", "10.0.0.9 . 2300"}
    assert (found["hosts4"], found["hosts6"]) == ({"10.0.0.1", "10.0.0.9"}, {"fd00::2"})


def test_loopback_and_link_local_addresses_are_not_in_the_sets() -> None:
    """On Debian a host's own name is 127.0.1.1, from which no packet of another host comes."""
    assert sets(replace(FENCE, names={"cee": ("127.0.1.1", "::1", "fe80::3%eth0", "10.0.0.3")})) == sets(
        replace(FENCE, names={"cee": ("10.0.0.3",)})
    )


def test_the_same_plan_gives_the_same_rules() -> None:
    turned = replace(FENCE, tasks=PLAN[::-1], names={"cee": ("fd00::3", "10.0.0.3")})
    assert ruleset(turned) == ruleset(replace(FENCE, names={"cee": NAMES["cee"]}))


def test_resolvers_are_allowed_only_if_the_fence_has_names() -> None:
    assert asked(FENCE) == ["10.0.0.53/32", "fe80::53/128"]
    assert asked(replace(FENCE, names={})) == []


def test_the_units_drop_in_allows_the_same_addresses() -> None:
    fence = replace(FENCE, may_reach=("192.0.2.0/24:443", "store"))
    (allowed,) = re.findall(r"^IPAddressAllow=localhost (.*)$", unit_drop_in(fence), re.MULTILINE)
    assert set(allowed.split()) == {
        *("10.0.0.1", "10.0.0.3", "fd00::2", "fd00::3"),
        *("192.0.2.0/24", "192.0.2.7/32", "10.0.0.53", "fe80::53"),
    }
    assert "53" not in unit_drop_in(replace(FENCE, names={}))


def test_tasks_behind_a_mesh_require_the_unit_of_the_mesh() -> None:
    assert "mesh" not in unit_drop_in(FENCE)
    needed = "psfleet-fence.service psfleet-mesh.service"
    assert f"Requires={needed}\nAfter={needed}\n" in unit_drop_in(replace(FENCE, mesh="psfleet"))


def test_a_fence_survives_a_round_trip_through_json_and_damage_is_refused() -> None:
    fence = replace(FENCE, may_reach=("10.9.0.0/16:443",), mesh="psfleet")
    assert Fence.from_json(json.loads(json.dumps(fence.to_json()))) == fence
    for damaged in ({}, {**fence.to_json(), "uid": "x"}, {**fence.to_json(), "tasks": [["a", "b"]]}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            Fence.from_json(damaged)


@pytest.mark.parametrize(
    ("text", "network", "name", "ports"),
    [
        ("10.0.0.0/8:443", "10.0.0.0/8", "", "443"),
        ("10.0.0.7", "10.0.0.7/32", "", ""),
        ("[fd00::1]:9000-9010", "fd00::1/128", "", "9000-9010"),
        ("[fd00::/64]", "fd00::/64", "", ""),
        ("store.example.org:1-65535", "None", "store.example.org", "1-65535"),
        ("store", "None", "store", ""),
    ],
)
def test_a_place_is_parsed_into_network_name_and_ports(
    text: str, network: str, name: str, ports: str
) -> None:
    found = to_reach(text)
    assert (str(found.network), found.name, found.ports) == (network, name, ports)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            ":443",
            "10.0.0.0/8:0",
            "10.0.0.0/8:65536",
            "10.0.0.0/8:20-10",
            "10.0.0.0/8:443:1",
            "10.0.0.1/8",
        ),
        *(
            "fd00::1",
            "[10.0.0.1]",
            "10.0.0.256",
            "10.0.0.0/33",
            "[fd00::/129]",
            "http://store",
            "store:https",
        ),
        *("-store", "store/24", "10.0.0.1; accept", "store accept", "10.0.0.1\n", "1٢.0.0.1"),
    ],
)
def test_an_invalid_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        to_reach(text)


@pytest.mark.parametrize(
    ("address", "ip"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("[fd00:0::2]", "fd00::2"),
        ("[fe80::1%eth0]", "fe80::1"),
        ("[::ffff:10.0.0.4]", "10.0.0.4"),
        ("node1", "None"),
    ],
)
def test_addresses_are_normalised_to_those_in_packets(address: str, ip: str) -> None:
    assert str(to_ip(address)) == ip
