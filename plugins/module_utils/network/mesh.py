"""The WireGuard mesh among the hosts of a plan: its configuration, and whether the interface matches it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..facts.host_facts import SECONDS_TO_ANSWER, ask
from ..host.wording import first_of

INTERFACE = "psfleet"
CONFIGURATION = f"mesh/{INTERFACE}.conf"  # below the configuration directory; names the interface
KEY = re.compile(r"[A-Za-z0-9+/]{42}[AEIMQUYcgkosw480]=")
# All hosts of a plan are in one network of 2^64 addresses.
_PREFIX = 64


class Peer(NamedTuple):
    """Another host; `address` is its address in the mesh, WireGuard sends its datagrams to `endpoint`."""

    host: str
    address: str
    endpoint: str
    public_key: str


def configuration(key: str, address: str, port: int, peers: Sequence[Peer]) -> str:
    """Return the configuration for wg-quick(8) of a host with this private key."""
    lines = [
        "# Written by psfleet's deploy.yml.",
        "[Interface]",
        f"PrivateKey = {key}",
        f"Address = {address}/{_PREFIX}",
        f"ListenPort = {port}",
    ]
    for peer in peers:
        lines += [
            f"\n# {peer.host}",
            "[Peer]",
            f"PublicKey = {peer.public_key}",
            f"AllowedIPs = {peer.address}/128",
            f"Endpoint = {peer.endpoint}:{port}",
        ]
    return "\n".join(lines) + "\n"


def of_interface(text: str) -> str:
    """Return the part of a `configuration` about the interface, without the peers."""
    return text.partition("\n\n")[0].strip()


class Mesh(NamedTuple):
    """The parts of a mesh to compare: key and port of the interface, and key -> address of its peers."""

    key: str
    port: str
    peers: Mapping[str, str]

    @classmethod
    def configured(cls, text: str) -> Mesh:
        """Return the mesh in a `configuration`; missing parts are empty."""
        of_interface = dict(re.findall(r"^(PrivateKey|ListenPort) = (.+)$", text, re.MULTILINE))
        peers = re.findall(r"^PublicKey = (.+)\nAllowedIPs = (.+)$", text, re.MULTILINE)
        return cls(of_interface.get("PrivateKey", ""), of_interface.get("ListenPort", ""), dict(peers))

    @classmethod
    def dumped(cls, text: str) -> Mesh:
        """Return the mesh in the output of `wg show INTERFACE dump`; its fields are in wg(8)."""
        first, *others = (line.split("\t") for line in text.splitlines())
        return cls(first[0], first[2], {fields[0]: fields[3] for fields in others})


def dump() -> str:
    """Return the output of `wg show INTERFACE dump`; "" if there is no interface."""
    return ask(["wg", "show", INTERFACE, "dump"], SECONDS_TO_ANSWER)[1]


def mesh_problem(configured: str, dumped: str) -> str:
    """Return how the dumped mesh differs from a `configuration`; "" if they agree."""
    if not dumped:
        return f"WireGuard's interface {INTERFACE} is not there"
    live, wanted = Mesh.dumped(dumped), Mesh.configured(configured)
    hosts = {key: host for host, key in re.findall(r"# (.+)\n\[Peer\]\nPublicKey = (.+)", configured)}
    keys = sorted({*wanted.peers, *live.peers})
    differing = [key for key in keys if wanted.peers.get(key) != live.peers.get(key)]
    if differing:
        names = [hosts.get(key, "a peer that is not in the plan") for key in differing]
        return f"WireGuard's interface {INTERFACE} has other peers than were deployed: {first_of(names, 3)}"
    return "" if live == wanted else f"WireGuard's interface {INTERFACE} has another key or port"
