"""The addresses at which hosts reach each other, and the port of each host's sshd there."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Any

from plugins.module_utils.network.fence_rules import IP, to_ip
from psfleet.inventory.problems import InventoryProblem, named, value_in_words
from psfleet.inventory.variables import ADDRESS, bracketed
from trainer.host.wording import grouped

# {host: {variable: value}}
ValuesByHost = Mapping[str, Mapping[str, Any]]

SSH_PORT = 22
# glibc and systemd-resolved answer these names, and all names below localhost, with loopback addresses.
_LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")


def host_addresses(
    values: ValuesByHost, variables: ValuesByHost
) -> tuple[dict[str, str], list[InventoryProblem]]:
    """Return ({host: its address for the other hosts}, problems with the addresses).

    An address is a name, an IPv4 address, or an IPv6 address in brackets: trainer_address, else ansible_host,
    else the inventory name. `values` has each host's converted variables, `variables` all of its variables. A
    host whose address is no valid text has no entry; one whose address is of no use to others has one, and a
    problem.
    """
    addresses: dict[str, str] = {}
    problems = []
    for host, chosen in values.items():
        given = chosen["trainer_address"] or _login_address(host, variables[host])
        address = bracketed(given) if isinstance(given, str) else given
        try:
            addresses[host] = str(ADDRESS.convert(address))
        except ValueError:
            if given == host:  # group_problems reports it
                continue
            what = f"the address of {host} {value_in_words(address)}; expected {ADDRESS.expected}"
            problems.append(InventoryProblem(what, "ansible_host", (host,)))
    return addresses, [
        *problems,
        *_unreachable_problems(addresses, values),
        *_shared_problems(addresses, values, variables),
    ]


def port_of_sshd(host: str, variables: Mapping[str, Any]) -> int:
    """Return the port at which other hosts reach the sshd of `host`, from the variables of `host`.

    ssh_mesh_port decides. Without it, the port is ansible_port (default: 22) if the other hosts use the same
    address as the controller. If trainer_address is another address, ansible_port may be a port that a router
    or a tunnel forwards, so the port is 22.
    """
    if variables.get("ssh_mesh_port"):
        return int(variables["ssh_mesh_port"])
    own = str(variables.get("trainer_address") or "")
    if own and _comparable(own) != _comparable(str(_login_address(host, variables))):
        return SSH_PORT
    return int(variables.get("ansible_port") or SSH_PORT)


def _login_address(host: str, variables: Mapping[str, Any]) -> object:
    """Return the address at which the controller logs in: ansible_host, or else the inventory name."""
    return variables.get("ansible_host") or host


def _comparable(address: str) -> str:
    ip = _ip(address)
    return address.lower() if ip is None else str(ip)


def _ip(address: str) -> IP | None:
    """Return the IP address that a text means; None for a name.

    Short forms are accepted, too: "127.1" and "0x7f000001" mean 127.0.0.1.
    """
    try:
        return to_ip(address) or IPv4Address(socket.inet_aton(address))
    except OSError:
        return None


def _unreachable_problems(addresses: Mapping[str, str], values: ValuesByHost) -> Iterator[InventoryProblem]:
    """Yield one problem for all hosts whose addresses no other host can reach for the same reason.

    An inventory of one host may use a loopback address.
    """
    kinds = [(_kind_of_unreachable(address), host) for host, address in addresses.items()]
    for kind, hosts in grouped((kind, host) for kind, host in kinds if kind).items():
        if kind == _LOOPBACK and len(values) == 1:
            continue
        given = ", ".join(dict.fromkeys(addresses[host] for host in hosts))
        what = (
            f"the address of {named(hosts)} is {given}, {kind}; expected trainer_address of each such host:"
        )
        what = f"{what} an address at which the other hosts reach it"
        yield InventoryProblem(what, _variable(hosts, values), tuple(hosts))


_LOOPBACK = "which means itself on every host"


def _kind_of_unreachable(address: str) -> str:
    """Return why no other host can reach a host at this address, as a clause; "" if other hosts may reach it.

    Example: _kind_of_unreachable("127.0.0.1") -> "which means itself on every host"
    """
    ip = _ip(address)
    if ip is None:
        name = address.lower()
        return _LOOPBACK if name in _LOOPBACK_NAMES or name.endswith(".localhost") else ""
    if ip.is_loopback:
        return _LOOPBACK
    if ip.is_unspecified or ip.is_multicast or ip == IPv4Address("255.255.255.255"):
        return "which is the address of no single host"
    if ip.version == 6 and ip.is_link_local:
        return "which is link-local: it needs the name of an interface, which TensorFlow does not accept"
    return ""


def _shared_problems(
    addresses: Mapping[str, str], values: ValuesByHost, variables: ValuesByHost
) -> Iterator[InventoryProblem]:
    """Yield a problem for each address that several hosts have; `_unreachable_problems` reports loopback."""
    hosts_at = grouped((_comparable(address), host) for host, address in addresses.items())
    for hosts in hosts_at.values():
        address = addresses[hosts[0]]
        if len(hosts) == 1 or _kind_of_unreachable(address):
            continue
        ports = sorted({str(variables[host].get("ansible_port") or SSH_PORT) for host in hosts})
        what = f"{named(hosts)} have one address, {address}"
        if len(ports) > 1:
            what = (
                f"{what}, and different SSH ports, {named(ports)}, as machines behind a router (NAT) have; "
            )
            what = f"{what}expected trainer_address of each: an address at which the other hosts reach it"
        else:
            what = f"{what}; expected one inventory name for each machine (a host in both groups runs both "
            what = f"{what}jobs, trainer_worker_tasks gives it several workers), or trainer_address of each"
        yield InventoryProblem(what, _variable(hosts, values), tuple(hosts))


def _variable(hosts: Sequence[str], values: ValuesByHost) -> str:
    """Return the variable that sets the address of these hosts: "trainer_address" if all have it set.

    Otherwise, return "ansible_host".
    """
    return "trainer_address" if all(values[host]["trainer_address"] for host in hosts) else "ansible_host"
