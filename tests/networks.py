"""Machines that are no more than a network each, joined by a switch: real packets, rules and users."""

import ctypes
import json
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_NETWORK = 0x40000000  # CLONE_NEWNET
# A bound for what no answer is to come of.
SECONDS = 1.0


class Networks:
    """Namespaces of this process's own, with addresses (name -> IPv4 and IPv6, all within /24 and /64)."""

    def __init__(self, addresses: Mapping[str, tuple[str, str]]) -> None:
        self._prefix = f"psfleet-test-{os.getpid()}-"
        self._names = ["switch", *addresses]
        for name in self._names:
            self.run("ip", "netns", "add", self._prefix + name)
            self.run("ip", "link", "set", "lo", "up", at=name)
            self.run("sysctl", "--quiet", "--write", "net.ipv6.conf.default.accept_dad=0", at=name)
        self.run("ip", "link", "add", "bridge", "type", "bridge", at="switch")
        self.run("ip", "link", "set", "bridge", "up", at="switch")
        for name, (four, six) in addresses.items():
            peer = ["type", "veth", "peer", "name", "eth0", "netns", self._prefix + name]
            self.run("ip", "link", "add", name, *peer, at="switch")
            self.run("ip", "link", "set", name, "master", "bridge", "up", at="switch")
            self.run("ip", "address", "add", f"{four}/24", "dev", "eth0", at=name)
            self.run("ip", "address", "add", f"{six}/64", "dev", "eth0", "nodad", at=name)
            self.run("ip", "link", "set", "eth0", "up", at=name)

    def close(self) -> None:
        """Remove them."""
        for name in self._names:
            subprocess.run(["ip", "netns", "delete", self._prefix + name], check=False)

    def run(self, *command: str, at: str = "") -> str:
        """Run a command in one of them, or here, and return what it printed."""
        inside = ["ip", "netns", "exec", self._prefix + at] if at else []
        return subprocess.run([*inside, *command], check=True, capture_output=True, text=True).stdout

    def path(self, name: str) -> Path:
        """Return the file by which a process may enter one of them."""
        return Path(f"/run/netns/{self._prefix}{name}")

    @contextmanager
    def inside(self, name: str, uid: int = 0) -> Iterator[None]:
        """Be in one of them as a user: a socket that is made here stays there, and is that user's."""
        with (
            Path("/proc/thread-self/ns/net").open() as home,
            self.path(name).open() as there,
        ):
            enter(there.fileno())
            try:
                with _as(uid):
                    yield
            finally:
                enter(home.fileno())

    def listen(self, name: str, port: int, uid: int = 0) -> socket.socket:
        """Return a socket that listens on all addresses of one of them."""
        with self.inside(name, uid):
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)

    def addresses(self, name: str) -> list[str]:
        """Return every address of one of them but loopback ones: "fe80::1%2" for others of this network."""
        printed = self.run("ip", "-json", "address", at=name)
        entries = [entry for interface in json.loads(printed) for entry in interface["addr_info"]]
        scoped = [(entry["local"], "%2" if entry["scope"] == "link" else "") for entry in entries]
        return [address + scope for address, scope in scoped if not ip_address(address).is_loopback]

    def connect(
        self, name: str, address: str, port: int, uid: int = 0, *, from_port: int = 0, source: str = ""
    ) -> socket.socket:
        """Open a connection from one of them."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with self.inside(name, uid):
            client = socket.socket(family)
        client.settimeout(SECONDS)
        try:
            if from_port or source:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                client.bind(_endpoint(source, from_port))
            client.connect(_endpoint(address, port))
        except OSError:
            client.close()
            raise
        return client

    def tried(self, name: str, address: str, port: int, uid: int = 0, *, source: str = "") -> str:
        """Say what becomes of a connection: "open", or in a word why not."""
        try:
            self.connect(name, address, port, uid, source=source).close()
        except OSError as error:
            return type(error).__name__
        return "open"


def _endpoint(address: str, port: int) -> tuple[str, int] | tuple[str, int, int, int]:
    """Return what a socket takes for an address; "fe80::1%2" is one of the interface with the number 2."""
    ip, scoped, interface = address.partition("%")
    return (ip, port, 0, int(interface)) if scoped else (ip, port)


def socket_of(uid: int, family: socket.AddressFamily) -> socket.socket:
    """Return a socket of a user, in the network of this process."""
    with _as(uid):
        return socket.socket(family)


@contextmanager
def _as(uid: int) -> Iterator[None]:
    _LIBC.setfsuid(uid)
    try:
        yield
    finally:
        _LIBC.setfsuid(0)


def enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _NETWORK):
        raise OSError(ctypes.get_errno(), "setns")
