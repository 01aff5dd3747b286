"""The WireGuard mesh among the hosts of a plan: whether a host's interface matches its configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ..facts.host_facts import SECONDS_TO_ANSWER, ask
from ..host.wording import first_of

INTERFACE = "psfleet"
CONFIGURATION = f"mesh/{INTERFACE}.conf"  # below the configuration directory; names the interface
KEY = re.compile(r"[A-Za-z0-9+/]{42}[AEIMQUYcgkosw480]=")


class Mesh(NamedTuple):
    """What is compared of a mesh: `key` and `port` of the interface, {key: address} of its peers."""

    key: str
    port: str
    peers: Mapping[str, str]

    @classmethod
    def configured(cls, text: str) -> Mesh:
        """Return the mesh in the text of a configuration that deploy.yml wrote; missing parts are empty."""
        of_interface = dict(re.findall(r"^(# PublicKey|ListenPort) = (.+)$", text, re.MULTILINE))
        peers = re.findall(r"^PublicKey = (.+)\nAllowedIPs = (.+)$", text, re.MULTILINE)
        return cls(of_interface.get("# PublicKey", ""), of_interface.get("ListenPort", ""), dict(peers))

    @classmethod
    def dumped(cls, text: str) -> Mesh:
        """Return the mesh in the output of `wg show INTERFACE dump`; wg(8) describes its fields."""
        first, *others = (line.split("\t") for line in text.splitlines())
        return cls(first[1], first[2], {fields[0]: fields[3] for fields in others})


def dump() -> str:
    """Return the output of `wg show INTERFACE dump`; "" if there is no interface."""
    return ask(["wg", "show", INTERFACE, "dump"], SECONDS_TO_ANSWER)[1]


def mesh_problem(configured: str, dumped: str) -> str:
    """Return how the dumped mesh differs from the configuration that deploy.yml wrote; "" if they agree."""
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
