import socket

import pytest

from plugins.module_utils.checks.name_checks import (
    Resolution,
    names_finding,
    names_in,
    resolve_names,
    sources_of_tasks,
)
from plugins.module_utils.host.check import failed, ok, warning

ADDRESSES = {"node1": "node1", "node2": "node2.example", "node3": "10.0.0.3", "node4": "[fd00::4]"}
FOUND = {"node1": Resolution(("10.0.0.1",)), "node2.example": Resolution(("10.0.0.2", "fd00::2"))}


def test_only_names_are_resolved_and_counted() -> None:
    assert names_in(ADDRESSES) == ["node1", "node2.example"]
    addresses = {"node3": "10.0.0.3", "node4": "[fd00::4]"}
    assert names_finding("node3", addresses, {}) == ok("addresses are used, no names")
    assert names_finding("node1", ADDRESSES, FOUND) == ok("2 names found")


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("hosts:          files dns", ["files", "dns"]),
        ("hosts: dns files # hosts: sss", ["dns", "files"]),
        ("hosts: files mdns4_minimal [NOTFOUND=return] dns myhostname", ["files", "dns", "myhostname"]),
        ("hosts:mymachines resolve [!UNAVAIL=return] files myhostname dns", ["files", "myhostname", "dns"]),
        ("hosts: sss wins", ["files", "dns"]),
        ("", ["files", "dns"]),
    ],
)
def test_names_are_not_asked_of_services_that_tasks_do_not_reach(hosts: str, expected: list[str]) -> None:
    assert sources_of_tasks(f"passwd: files systemd\n{hosts}\nnetworks: files\n") == expected


def test_names_resolve_as_programs_of_this_machine_resolve_them() -> None:
    found = resolve_names(["localhost", "no-such-host.invalid"])
    assert set(found["localhost"].addresses) <= {"127.0.0.1", "::1"}
    assert found["localhost"].addresses
    assert (found["localhost"].problem, found["no-such-host.invalid"]) == ("", Resolution((), "not known"))
    with pytest.raises(OSError, match=r".+"):
        socket.getaddrinfo("no-such-host.invalid", None)


@pytest.mark.parametrize("loopback", ["127.0.1.1", "::1%lo", "127.0.0.1"])
def test_unresolved_and_misleading_names_are_reported_with_both_remedies(
    loopback: str,
) -> None:
    resolved = {"node1": Resolution((), "not known"), "node2.example": Resolution((loopback,))}
    assert names_finding("node1", {**ADDRESSES, "node0": "node0"}, resolved) == failed(
        "node1 does not resolve (not known); "
        f"node2.example (of node2) is {loopback.partition('%')[0]}, which is node1 itself",
        "correct /etc/hosts of this host, or give an IP address: trainer_address of that host; "
        "write it into /etc/hosts or DNS, or give an IP address: trainer_address of that host",
    )


def test_the_loopback_name_that_debian_gives_a_host_gets_a_warning() -> None:
    """The tasks listen on every address, so tasks on that host reach each other by the name."""
    itself = {**FOUND, "node1": Resolution(("127.0.1.1",))}
    assert names_finding("node1", {"node1": "node1", "node3": "10.0.0.3"}, itself) == warning(
        "node1 is 127.0.1.1 here, which no other host reaches: psfleet's tasks listen on every address, a "
        "user's program may listen there alone",
        "remove that line from /etc/hosts of this host, or set trainer_address to its IP address",
    )
    assert names_finding("node1", {"node1": "node1"}, itself) == ok("1 name found")


def test_only_the_first_of_many_unresolved_names_are_reported() -> None:
    addresses = {f"node{number}": f"node{number}" for number in range(1, 31)}
    check = names_finding("other", addresses, {name: Resolution((), "not known") for name in addresses})
    assert check.found.endswith("; node13 does not resolve (not known) and 25 more")
