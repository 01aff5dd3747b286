"""The rules of a host's fence: who reaches its tasks' ports, and where its tasks may connect to.

Pure functions make rules for nftables and systemd, from the plan and the state of the host (`fence_state`).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from string import Template
from typing import Any, NamedTuple, Union

IP = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]  # noqa: UP007 - Python 3.8 has no other
Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]  # noqa: UP007 - as above

# Examples: "10.0.0.0/8:443", "[fd00::1]:9000-9010", "storage.example.org".
_REACH = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:]+(?:/\d+)?)\]|(?P<four>\d[\d.]*(?:/\d+)?)|(?P<name>[A-Za-z_][\w.-]*))"
    r"(?::(?P<first>\d+)(?:-(?P<last>\d+))?)?",
    re.ASCII,
)
LAST_PORT = 65535
# The name of the counter of refused connections at a port is this text and the port's number.
REFUSED_AT = "refused_at_"


class Endpoint(NamedTuple):
    """Where a task of the plan listens: its `host`, its `address` (an IP or a name) and its `port`."""

    host: str
    address: str
    port: int


class Reach(NamedTuple):
    """A place outside the plan that tasks may reach: a `network`, or a `name`.

    Without a network, `network` is None; without a name, `name` is "". `ports` is like "443" or "9000-9010",
    "" for all ports.
    """

    network: Network | None
    name: str
    ports: str


def to_reach(text: str) -> Reach:
    """Return the place that an entry of trainer_program_may_reach names. Raises ValueError if it is invalid.

    Example: to_reach("storage.example.org:443") -> Reach(None, "storage.example.org", "443")
    """
    match = _REACH.fullmatch(text)
    bounds = [int(port) for port in match.group("first", "last") if port] if match else []
    if match is None or bounds != sorted(bounds) or not all(0 < port <= LAST_PORT for port in bounds):
        raise ValueError(text)
    place = match["six"] or match["four"]
    network = ipaddress.ip_network(place) if place else None
    return Reach(network, match["name"] or "", "-".join(map(str, bounds)))


def to_ip(address: str) -> IP | None:
    """Return the IP address in a text; None if it is not one, such as a name.

    Brackets and an interface (fe80::1%eth0) are removed. An IPv4-mapped IPv6 address is returned as IPv4,
    because its packets are IPv4.
    """
    try:
        ip = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return None
    return getattr(ip, "ipv4_mapped", None) or ip


@dataclass(frozen=True)
class Fence:
    """The data for the fence of `host`.

    From the inventory:

    - `tasks`: the endpoints of all tasks of the plan. `user`: the account that runs them.
    - `may_reach`: as in trainer_program_may_reach.
    - `mesh`: the only interface through which hosts reach each other, "" for any.

    From the host; `fence_state.survey` reads them:

    - `uid`: of the user. `names`: {name in the inventory: its IP addresses here}.
    - `resolvers`: the IP addresses of the host's name servers.
    - `own`: the IP addresses at which other hosts reach this host (`fence_state.own_addresses`).
    """

    host: str
    user: str
    tasks: tuple[Endpoint, ...]
    may_reach: tuple[str, ...] = ()
    uid: int = 0
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    resolvers: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    mesh: str = ""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Fence:
        """Return the fence from an object that `to_json` returned.

        Raises KeyError, TypeError or ValueError for any other object.
        """
        return cls(
            host=str(content["host"]),
            user=str(content["user"]),
            tasks=tuple(Endpoint(host, address, int(port)) for host, address, port in content["tasks"]),
            may_reach=tuple(content["may_reach"]),
            uid=int(content["uid"]),
            names={name: tuple(found) for name, found in content["names"].items()},
            resolvers=tuple(content["resolvers"]),
            own=tuple(content["own"]),
            mesh=str(content["mesh"]),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fence as an object for `from_json`."""
        return asdict(self)

    @property
    def addresses(self) -> dict[str, str]:
        """{host: its address in the plan, an IP or a name}."""
        return {task.host: task.address for task in self.tasks}

    @property
    def entries(self) -> list[Reach]:
        """The places in `may_reach`, in the same order. Raises ValueError for an invalid entry."""
        return list(map(to_reach, self.may_reach))

    @property
    def reach(self) -> list[tuple[Network, str]]:
        """The pairs (network, ports) outside the plan that tasks may reach, sorted, each once.

        A name in `may_reach` stands for each IP to which it resolves on this host. The ports are as in Reach.
        """
        pairs = []
        for network, name, ports in self.entries:
            networks = [network] if network else [ipaddress.ip_network(ip) for ip in self.resolved(name)]
            pairs += [(each, ports) for each in networks]
        return sorted(set(pairs), key=lambda each: (each[0].version, str(each[0]), each[1]))

    @property
    def task_endpoints(self) -> set[tuple[IP, int]]:
        """The (IP, port) pairs at which the plan's tasks listen: one for each IP of a task's host.

        For this host, the IPs are those in `own`.
        """
        own = [ip for text in self.own if (ip := to_ip(text))]
        return {
            (ip, task.port)
            for task in self.tasks
            for ip in (own if task.host == self.host else self.ips(task.address))
        }

    def ips(self, address: str) -> list[IP]:
        """Return the IPs to which an address of the plan resolves on this host; [] if there is none.

        Loopback and link-local IPv6 addresses are left out: loopback is on every host, and link-local
        addresses mean nothing without an interface.
        """
        found = self.resolved(address)
        return [ip for ip in found if not (ip.is_loopback or (ip.version == 6 and ip.is_link_local))]

    def resolved(self, address: str) -> list[IP]:
        """Return all IPs to which an address of the plan, or a name in may_reach, resolves on this host.

        An IP address gives itself. A name that is not in `names` gives [].
        """
        own = to_ip(address)
        return [own] if own else [ip for text in self.names.get(address, ()) if (ip := to_ip(text))]


# Other tables may still refuse packets: `accept` and `return` only end the evaluation of this table. Outgoing
# traffic is judged only at the beginning of a connection (SYN and its answer), so new rules break no current
# run.
_RULES = Template("""\
# Written by psfleet's deploy.yml, which alone should change it: which hosts may reach the ports of this
# host's tasks, and where its tasks may go (docs/security.md).
add table inet psfleet
delete table inet psfleet
table inet psfleet {
	# The ports of this host's tasks; the hosts of the plan, and where the tasks of all listen.
	set ports { type inet_service; $ports }
	set hosts4 { type ipv4_addr; $hosts4 }
	set hosts6 { type ipv6_addr; $hosts6 }
	set tasks4 { type ipv4_addr . inet_service; $tasks4 }
	set tasks6 { type ipv6_addr . inet_service; $tasks6 }
	# How many connections to each of this host's tasks were refused.
$counters
	map refused_at { type inet_service : counter; $refused_at }

	chain counted {
		fib daddr type local tcp flags & (fin | syn | rst | ack) == syn counter name tcp dport map @refused_at
	}
	chain refused {
		meta l4proto tcp reject with tcp reset
		reject with icmpx admin-prohibited
	}

	# From another machine to a task: from the address of a host of the plan to the address of a task, and
	# untranslated. The hosts of the plan know no other way to a task, so they cannot keep their users off it.
	chain strangers {
		ct status dnat goto unwanted
		${through_mesh}ip saddr @hosts4 ip daddr . tcp dport @tasks4 return
		${through_mesh}ip6 saddr @hosts6 ip6 daddr . tcp dport @tasks6 return
		goto unwanted
	}
	# A connection of another user may have the number of a task's port on this side.
	chain unwanted {
		meta skuid != $uid return
		jump counted
		reject with tcp reset
	}
	chain input {
		type filter hook input priority filter; policy accept;
		iif != lo tcp dport @ports jump strangers
	}
	# Other hosts would see containers of this host at its address.
	chain forward {
		type filter hook forward priority filter; policy accept;
		ip daddr . tcp dport @tasks4 jump strangers
		ip6 daddr . tcp dport @tasks6 jump strangers
	}

	# From this host: its tasks to the plan's tasks, root anywhere, other users to no task.
	chain output {
		type filter hook output priority filter; policy accept;
$mesh_alone
		meta skuid $uid goto tasks
		meta skuid 0 accept
		# No other user answers for a task, nor a packet without a known owner (as with tcp_syncookies=2).
		tcp sport @ports tcp flags & (syn | ack) == (syn | ack) goto refused
		tcp flags & (fin | syn | rst | ack) != syn accept
		# Not by "oif lo", which is still the former interface after the translation of an address.
		fib daddr type local tcp dport @ports jump counted
		fib daddr type local tcp dport @ports goto refused
		ip daddr . tcp dport @tasks4 goto refused
		ip6 daddr . tcp dport @tasks6 goto refused
	}
	chain tasks {
		tcp flags & syn == 0 accept
		# They serve at their ports, and at others only for this host. Otherwise they answer no one: a peer
		# that sends SYN to a connection that they begin would become its other end.
		tcp sport @ports tcp flags & (syn | ack) == (syn | ack) accept
		oif lo tcp dport != @ports tcp flags & (syn | ack) == (syn | ack) accept
		tcp flags & (syn | ack) == (syn | ack) goto refused
		oif lo tcp dport @ports accept
		ip daddr . tcp dport @tasks4 accept
		ip6 daddr . tcp dport @tasks6 accept
$named_ports
		# trainer_program_may_reach opens no other port of the plan's hosts, unless it names that.
		oif lo goto refused
		ip daddr @hosts4 goto refused
		ip6 daddr @hosts6 goto refused
$all_ports
		goto refused
	}
}
""")


def ruleset(fence: Fence) -> str:
    """Return the rules for `nft --file`, as text. Loading them replaces the earlier rules at one moment."""
    tasks = fence.task_endpoints
    hosts = {ip for ip, _ in tasks}
    resolvers = [(ipaddress.ip_network(ip), "53") for text in fence.resolvers if (ip := to_ip(text))]
    reach = fence.reach + (resolvers if fence.names else [])
    ports = sorted({task.port for task in fence.tasks if task.host == fence.host})
    return _RULES.substitute(
        uid=fence.uid,
        through_mesh=f'iifname "{fence.mesh}" ' if fence.mesh else "",
        mesh_alone=_lines(
            f'oifname != {{ "lo", "{fence.mesh}" }} {family} daddr @hosts{version} goto refused'
            for family, version in (("ip", 4), ("ip6", 6))
            if fence.mesh
        ),
        ports=_elements(ports),
        counters="\n".join(f"\tcounter {REFUSED_AT}{port} {{ packets 0 bytes 0 }}" for port in ports),
        refused_at=_elements(f'{port} : "{REFUSED_AT}{port}"' for port in ports),
        hosts4=_elements(ip for ip in hosts if ip.version == 4),
        hosts6=_elements(ip for ip in hosts if ip.version == 6),
        tasks4=_elements(f"{ip} . {port}" for ip, port in tasks if ip.version == 4),
        tasks6=_elements(f"{ip} . {port}" for ip, port in tasks if ip.version == 6),
        named_ports=_lines(
            f"{_to(network)} meta l4proto {{ tcp, udp }} th dport {ports} accept"
            for network, ports in reach
            if ports
        ),
        all_ports=_lines(f"{_to(network)} accept" for network, ports in reach if not ports),
    )


def _to(network: Network) -> str:
    return f"{'ip' if network.version == 4 else 'ip6'} daddr {network}"


def _elements(values: Iterable[object]) -> str:
    listed = ", ".join(sorted(map(str, values)))
    return f"elements = {{ {listed} }}" if listed else ""


def _lines(rules: Iterable[str]) -> str:
    return "\n".join(f"\t\t{rule}" for rule in rules)


def unit_drop_in(fence: Fence) -> str:
    """Return the text of the systemd drop-in for the unit of each task.

    With it, a task does not start without the fence, and has a second fence: systemd's own IP filter, which
    knows no ports or users. If the kernel supports it, it works even while the nftables rules are flushed.
    """
    allowed = {str(ip) for ip, _ in fence.task_endpoints}
    allowed |= {str(network) for network, _ in fence.reach}
    if fence.names:
        allowed |= {str(ip) for text in fence.resolvers if (ip := to_ip(text))}
    units = "psfleet-fence.service" + (" psfleet-mesh.service" if fence.mesh else "")
    return (
        "# Written by psfleet's deploy.yml.\n"
        f"[Unit]\nRequires={units}\nAfter={units}\n\n"
        f"[Service]\nIPAddressDeny=any\nIPAddressAllow={' '.join(['localhost', *sorted(allowed)])}\n"
    )
