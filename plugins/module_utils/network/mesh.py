"""The WireGuard mesh among the hosts of a plan: whether a host's interface matches its configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ..facts.host_facts import SECONDS_TO_ANSWER, run_program
from ..host.wording import first_of

INTERFACE = "psfleet"
CONFIGURATION = f"mesh/{INTERFACE}.conf"  # below the configuration directory; names the interface
KEY = re.compile(r"[A-Za-z0-9+/]{42}[AEIMQUYcgkosw480]=")


class Mesh(NamedTuple):
    """A host's WireGuard interface: its public `key`, its UDP `port`, and its `peers`.

    `peers` is {public key of another host: its address in the mesh}. All are texts.
    """

    key: str
    port: str
    peers: Mapping[str, str]

    @classmethod
    def from_configuration(cls, text: str) -> Mesh:
        """Return the mesh in the text of a configuration that deploy.yml wrote; what it lacks is "" or {}."""
        values = dict(re.findall(r"^(# PublicKey|ListenPort) = (.+)$", text, re.MULTILINE))
        peers = re.findall(r"^PublicKey = (.+)\nAllowedIPs = (.+)$", text, re.MULTILINE)
        return cls(values.get("# PublicKey", ""), values.get("ListenPort", ""), dict(peers))

    @classmethod
    def from_dump(cls, text: str) -> Mesh:
        """Return the mesh in the output of `wg show INTERFACE dump`, which must not be empty (see wg(8))."""
        first, *others = (line.split("\t") for line in text.splitlines())
        return cls(first[1], first[2], {fields[0]: fields[3] for fields in others})


def read_dump() -> str:
    """Return the output of `wg show INTERFACE dump`; "" if there is no interface."""
    return run_program(["wg", "show", INTERFACE, "dump"], SECONDS_TO_ANSWER)[1]


def mesh_problem(configuration: str, dump: str) -> str:
    """Return, in words, how the live mesh differs from the deployed one; "" if it does not.

    `configuration` is the text that deploy.yml wrote; `dump` is what `read_dump` returned, "" without
    interface.
    """
    if not dump:
        return f"WireGuard's interface {INTERFACE} is not there"
    live, wanted = Mesh.from_dump(dump), Mesh.from_configuration(configuration)
    hosts = {key: host for host, key in re.findall(r"# (.+)\n\[Peer\]\nPublicKey = (.+)", configuration)}
    keys = sorted({*wanted.peers, *live.peers})
    differing = [key for key in keys if wanted.peers.get(key) != live.peers.get(key)]
    if differing:
        names = [hosts.get(key, "a peer that is not in the plan") for key in differing]
        return f"WireGuard's interface {INTERFACE} has other peers than were deployed: {first_of(names, 3)}"
    return "" if live == wanted else f"WireGuard's interface {INTERFACE} has another key or port"
