"""Ports for tests that no other process takes first."""

import functools
import itertools
import socket
from collections.abc import Iterator
from contextlib import suppress

# Below those that Linux gives to connections. Each session of tests on this machine has a block of its own.
_FIRST_PORT, _PORTS_OF_A_SESSION, _SESSIONS = 20_000, 1_000, 12


@functools.cache
def _ports_of_this_session() -> tuple[Iterator[int], socket.socket]:
    """The ports, round and round, and what holds them for this process: a name that one socket can have."""
    for first in range(_FIRST_PORT, _FIRST_PORT + _SESSIONS * _PORTS_OF_A_SESSION, _PORTS_OF_A_SESSION):
        holder = socket.socket(socket.AF_UNIX)
        try:
            holder.bind(f"\0psfleet-tests-{first}")
        except OSError:
            holder.close()
            continue
        return itertools.cycle(range(first, first + _PORTS_OF_A_SESSION)), holder
    raise RuntimeError(f"{_SESSIONS} sessions of tests hold all ports")


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, and that nobody takes before the test does."""
    ports: list[int] = []
    while len(ports) < count:
        port = next(_ports_of_this_session()[0])
        with socket.socket() as holder, suppress(OSError):
            holder.bind(("", port))
            ports.append(port)
    return ports
