"""Probes whether the hosts of a plan reach each other's ports, with a listener that answers meanwhile.

The listener runs as root, because the fence lets connections to root pass. It never reads what others send.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..host.whole_files import text_of
from ..host.wording import grouped

ANSWERED, OPEN, REFUSED, SILENT, UNKNOWN = "answered", "open", "refused", "no answer", "unknown name"
# The name of the listener's process; another doctor.yml at the same time recognises it by this name.
LISTENER = "psfleet-doctor"
SECONDS_TO_CONNECT = 5.0
SECONDS_TO_GREET = 2.0
SECONDS_TO_END = 2.0
LONGEST_GREETING = 1000
MOST_PROBES_AT_ONCE = 256


class Peer(NamedTuple):
    """A port of another host of the plan; `address` is the host's address in the plan, an IP or a name."""

    host: str
    address: str
    port: int


class ProbeResult(NamedTuple):
    """The result of a connection to a peer.

    - `outcome`: ANSWERED (by a doctor's listener), OPEN (by something else), REFUSED, SILENT, UNKNOWN, or the
      kernel's error in lower case.
    - `source`: the address from which the connection came to the listener; if no listener answered, the
      address from which this host sends to the peer, "" if it cannot.
    - `name`, `machine`: the host and the machine of the listener (`this_machine`), "" if none answered.
    """

    outcome: str
    source: str = ""
    name: str = ""
    machine: str = ""


def this_machine() -> str:
    """Return 16 hex digits that identify this machine and its network; a container with its own has others.

    They change at each boot.
    """
    boot = text_of(Path("/proc/sys/kernel/random/boot_id"))
    network = os.stat("/proc/self/ns/net")  # noqa: PTH116 - it is no file
    return hashlib.sha256(f"{boot}{network.st_dev} {network.st_ino}".encode()).hexdigest()[:16]


def listen_on(ports: Sequence[int]) -> dict[int, socket.socket]:
    """Listen on every address at the free ports among `ports`; return {port: socket} of these.

    Several runs of doctor.yml at the same time share the ports. Only root can join in.
    """
    servers = {}
    dual = socket.has_dualstack_ipv6()
    family, address = (socket.AF_INET6, "::") if dual else (socket.AF_INET, "0.0.0.0")  # noqa: S104 - as tasks
    for port in ports:
        with suppress(OSError):
            servers[port] = socket.create_server(
                (address, port), family=family, backlog=1024, reuse_port=True, dualstack_ipv6=dual
            )
    return servers


def fork_listener(
    servers: Collection[socket.socket], name: str, seconds: int, is_over: Callable[[], bool]
) -> dict[str, Any]:
    """Fork a process that greets each connection; return its `pid`, and `born`, its start time.

    The process calls `is_over` every second, and ends when this returns True, but after `seconds` at the
    latest. `name` is the host's name, for the greeting. In the calling process, the sockets are closed.
    """
    machine = this_machine()
    if not (pid := os.fork()):
        try:
            for end in (signal.SIGALRM, signal.SIGTERM):
                signal.signal(end, signal.SIG_DFL)
            signal.alarm(seconds)
            os.setsid()
            os.nice(10)
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nothing, stream)
            with suppress(OSError):
                Path("/proc/self/comm").write_text(LISTENER)
                Path("/proc/self/oom_score_adj").write_text("1000")
            _greet_all(servers, name, machine, is_over)
        finally:
            os._exit(0)
    for server in servers:
        server.close()
    return {"pid": pid, "born": _born(pid)}


def _greet_all(
    servers: Collection[socket.socket], name: str, machine: str, is_over: Callable[[], bool]
) -> None:
    # The other side hangs up first, so that no port is busy (TIME_WAIT) after the end.
    greeted: deque[socket.socket] = deque(maxlen=256)
    asked_at = time.monotonic()
    while True:
        for server in select.select(servers, [], [], 1.0)[0]:
            with suppress(OSError):
                connection, source = server.accept()
                greeted.append(connection)
                greeting = {"name": name, "machine": machine, "source": source[0]}
                connection.sendall(json.dumps(greeting).encode() + b"\n")
        if time.monotonic() > asked_at + 1.0:
            if is_over():
                return
            asked_at = time.monotonic()


def end_listener(pid: int, born: str) -> bool:
    """End a listener, and wait for its end, at most 2 s; return True if it was still running.

    `pid` and `born` are as `fork_listener` returned them. Another process with the same pid is not ended.
    """
    if not born or _born(pid) != born:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + SECONDS_TO_END
    while _born(pid) == born and time.monotonic() < deadline:
        time.sleep(0.01)
    return True


def _born(pid: int) -> str:
    """Return the start time of a process, in ticks; "" if it has ended.

    The time tells it from a later process with the same pid.
    """
    state, *fields = text_of(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split() or ["Z"]
    return "" if state == "Z" else fields[18]


def probe_all(peers: Sequence[Peer]) -> list[dict[str, object]]:
    """Connect to all peers; return one object for each host and each different result for its ports.

    An object has `host`, `ports` (all ports of the host with this result), and the fields of ProbeResult.
    """
    with ThreadPoolExecutor(MOST_PROBES_AT_ONCE) as pool:
        results = list(pool.map(probe, peers))
    alike = grouped(((peer.host, result), peer.port) for peer, result in zip(peers, results))  # noqa: B905
    return [{"host": host, "ports": ports, **result._asdict()} for (host, result), ports in alike.items()]


def probe(peer: Peer) -> ProbeResult:
    """Connect to a port, read the greeting, hang up, and return the result; no error is raised.

    It waits for the connection at most 5 s, for each part of the greeting at most 2 s.
    """
    place = (peer.address.strip("[]"), peer.port)
    try:
        with socket.create_connection(place, SECONDS_TO_CONNECT) as connection:
            return _read_greeting(connection)
    except (socket.gaierror, UnicodeError):
        return ProbeResult(UNKNOWN)
    except socket.timeout:  # noqa: UP041 - Python 3.8 has no other
        outcome = SILENT
    except (ConnectionRefusedError, ConnectionResetError):
        outcome = REFUSED
    except OSError as error:
        outcome = (error.strerror or str(error)).lower()
    return ProbeResult(outcome, source_address(*place))


def _read_greeting(connection: socket.socket) -> ProbeResult:
    source = connection.getsockname()[0]
    connection.settimeout(SECONDS_TO_GREET)
    text = b""
    try:
        while not text.endswith(b"\n") and len(text) < LONGEST_GREETING and (part := connection.recv(1000)):
            text += part
        greeting = json.loads(text)
        return ProbeResult(ANSWERED, *(str(greeting[field]) for field in ("source", "name", "machine")))
    except (socket.timeout, ValueError, KeyError, TypeError, RecursionError):  # noqa: UP041 - as above
        return ProbeResult(OPEN, source)


def source_address(address: str, port: int) -> str:
    """Return the IP address from which this host would send to another; "" without a route.

    `address` may be a name; "" if it does not resolve. Nothing is sent.
    """
    try:
        family, kind, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as sender:
            sender.connect(place)
            return str(sender.getsockname()[0])
    except OSError:
        return ""
