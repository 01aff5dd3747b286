"""Which addresses are refused, and at which port the hosts look for each other's sshd."""

import pytest

from psfleet.inventory.addresses import port_of_sshd
from tests.psfleet.inventory.inventories import problems, read

FORWARDED = {"ansible_host": "127.0.0.1", "ansible_port": 2201}


@pytest.mark.parametrize(
    ("variables", "port"),
    [
        ({}, 22),
        ({"ansible_host": "10.0.0.1", "ansible_port": 2022}, 2022),
        ({"ansible_host": "10.0.0.1", "ansible_port": "2022", "trainer_address": ""}, 2022),
        ({**FORWARDED, "trainer_address": "10.89.1.11"}, 22),
        ({**FORWARDED, "trainer_address": "10.89.1.11", "ssh_mesh_port": 2222}, 2222),
        ({**FORWARDED, "ssh_mesh_port": "2222"}, 2222),
        # The same address in another form is no sign of a forwarded port.
        ({"ansible_host": "FD00:0::1", "ansible_port": 2022, "trainer_address": "[fd00::1]"}, 2022),
        ({"ansible_port": 2022, "trainer_address": "N1"}, 2022),
        ({"ansible_port": 2022, "trainer_address": "10.0.0.1"}, 22),
    ],
)
def test_a_port_that_may_be_forwarded_is_not_taken_for_the_port_of_sshd(
    variables: dict[str, object], port: int
) -> None:
    assert port_of_sshd("n1", variables) == port


LOOPBACK = ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "127.255.255.254", "localhost", "LocalHost"]
LOOPBACK += ["ip6-localhost", "n1.localhost", "::1", "[::1]", "::ffff:127.0.0.1"]
OF_NO_HOST = ["0.0.0.0", "0", "::", "224.0.0.1", "ff02::1", "255.255.255.255", "::ffff:0.0.0.0"]


@pytest.mark.parametrize("variable", ["ansible_host", "trainer_address"])
@pytest.mark.parametrize("address", LOOPBACK)
def test_a_loopback_address_is_refused_unless_the_host_is_alone(address: str, variable: str) -> None:
    if variable == "trainer_address" and ":" in address:
        address = f"[{address.strip('[]')}]"
    (problem,) = problems(["a"], ["b"], {"a": {variable: address}})
    assert problem.startswith("the address of a is ")
    assert "which means itself on every host; expected trainer_address of each such host" in problem
    assert len(read(["a"], ["a"], {"a": {variable: address}}).tasks) == 2


@pytest.mark.parametrize("address", OF_NO_HOST)
def test_an_address_of_no_single_host_is_refused(address: str) -> None:
    for worker in ("a", "b"):
        (problem,) = problems(["a"], [worker], {"a": {"ansible_host": address}})
        assert "which is the address of no single host; expected trainer_address" in problem


def test_a_link_local_address_is_refused_as_its_interface_is_unknown() -> None:
    (problem,) = problems(["a"], ["b"], {"a": {"ansible_host": "fe80::1"}})
    assert "is [fe80::1], which is link-local" in problem
    read(["a"], ["b"], {"a": {"ansible_host": "169.254.7.1"}})


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "128.0.0.1", "localhost.example.org", "mylocalhost", "fd00::1"]
)
def test_other_addresses_are_accepted(address: str) -> None:
    read(["a"], ["b"], {"a": {"ansible_host": address}})
    read(["a"], ["b"], {"a": {"ansible_host": "127.0.0.1", "trainer_address": "10.0.0.1"}})


def test_a_host_that_is_called_localhost_needs_an_address() -> None:
    assert problems(["localhost"], ["b"], {"localhost": {"ansible_connection": "local"}}) == [
        "the address of localhost is localhost, which means itself on every host; expected trainer_address "
        "of each such host: an address at which the other hosts reach it"
    ]
    read(["localhost"], ["b"], {"localhost": {"trainer_address": "10.0.0.1"}})


def test_hosts_that_share_an_address_are_told_of_trainer_address() -> None:
    nat = {host: {"ansible_host": "192.0.2.1", "ansible_port": 2200 + n} for n, host in enumerate("abc")}
    assert problems(["a"], ["b", "c"], nat) == [
        "a, b, c have one address, 192.0.2.1, and different SSH ports, 2200, 2201, 2202, as machines behind "
        "a router (NAT) have; expected trainer_address of each: an address at which the other hosts reach it"
    ]
    loopback = {host: {**of_host, "ansible_host": "127.0.0.1"} for host, of_host in nat.items()}
    assert problems(["a"], ["b", "c"], loopback) == [
        "the address of a, b, c is 127.0.0.1, which means itself on every host; expected trainer_address of "
        "each such host: an address at which the other hosts reach it"
    ]
    one = {host: {"ansible_host": address} for host, address in {"a": "10.0.0.1", "b": "10.0.0.01"}.items()}
    assert problems(["a"], ["b"], one) == [
        "a, b have one address, 10.0.0.1; expected one inventory name for each machine (a host in both "
        "groups runs both jobs, trainer_worker_tasks gives it several workers), or trainer_address of each"
    ]
