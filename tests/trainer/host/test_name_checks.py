import socket

import pytest

from trainer.host.name_checks import Resolution, name_check, names_in, resolve_names

ADDRESSES = {"node1": "node1", "node2": "node2.example", "node3": "10.0.0.3", "node4": "[fd00::4]"}
FOUND = {"node1": Resolution(("10.0.0.1",)), "node2.example": Resolution(("10.0.0.2", "fd00::2"))}


def test_only_names_are_resolved() -> None:
    assert names_in(ADDRESSES) == ["node1", "node2.example"]
    check = name_check("node3", {"node3": "10.0.0.3", "node4": "[fd00::4]"}, {})
    assert (check.state, check.found) == ("ok", "addresses are used, no names")


def test_this_machine_is_asked_as_its_programs_are() -> None:
    found = resolve_names(["localhost", "no-such-host.invalid"])
    assert set(found["localhost"].addresses) <= {"127.0.0.1", "::1"}
    assert found["localhost"].addresses
    assert found["no-such-host.invalid"].addresses == ()
    assert found["no-such-host.invalid"].problem
    with pytest.raises(OSError, match=r".+"):
        socket.getaddrinfo("no-such-host.invalid", None)


def test_names_that_are_found() -> None:
    check = name_check("node1", ADDRESSES, FOUND)
    assert (check.state, check.found) == ("ok", "2 names found")


def test_a_name_that_does_not_resolve() -> None:
    check = name_check("node1", ADDRESSES, {**FOUND, "node2.example": Resolution((), "not known")})
    assert check.state == "failed"
    assert check.found == "node2.example (of node2) does not resolve (not known)"
    assert "/etc/hosts or DNS" in check.remedy
    assert "trainer_address" in check.remedy


@pytest.mark.parametrize("loopback", ["127.0.1.1", "::1", "127.0.0.1"])
def test_another_hosts_name_that_means_this_host(loopback: str) -> None:
    check = name_check("node1", ADDRESSES, {**FOUND, "node2.example": Resolution((loopback,))})
    assert check.state == "failed"
    assert check.found == f"node2.example (of node2) is {loopback}, which is node1 itself"
    assert "/etc/hosts" in check.remedy


def test_debians_name_for_itself_deserves_a_warning() -> None:
    """The tasks listen on every address, so those on the host reach each other by it."""
    itself = {**FOUND, "node1": Resolution(("127.0.1.1",))}
    check = name_check("node1", ADDRESSES, itself)
    assert check.state == "warning"
    assert "node1 is 127.0.1.1 here, which no other host reaches" in check.found
    assert name_check("node1", {"node1": "node1"}, itself).state == "ok"


def test_of_many_names_the_first_are_told() -> None:
    addresses = {f"node{number}": f"node{number}" for number in range(1, 31)}
    check = name_check("other", addresses, {name: Resolution((), "not known") for name in addresses})
    assert check.found.endswith(" and 25 more")
    assert len(check.found) < 300
