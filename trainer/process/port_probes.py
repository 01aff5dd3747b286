"""Probes: whether other tasks' ports answer, and whether another user holds a task's own port."""

import errno
import os
import socket
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from trainer.contract.exit_codes import CLUSTER_BROKE
from trainer.host.port_holders import in_words, read_holders, user_of
from trainer.process.cluster import split_address
from trainer.process.failure import TaskFailure

REFUSED = "connection refused"
_KNOWN = {
    errno.ECONNREFUSED: REFUSED,
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network unreachable",
}

_PROBE_SECONDS = 1.0


@dataclass(frozen=True)
class Missing:
    """A task that does not answer or has not reported yet: its name, its "host:port", and why, in words."""

    task: str
    address: str
    reason: str

    def __str__(self) -> str:
        """Return all three in one text, such as "ps0 at 10.0.0.1:2222 (connection refused)"."""
        return f"{self.task} at {self.address} ({self.reason})"


def in_a_line(missing: Iterable[Missing]) -> str:
    """Return the texts of all missing tasks in one line, joined by "; "; "" if there are none."""
    return "; ".join(str(entry) for entry in missing)


def probe(address: str) -> str | None:
    """Return why nothing accepts connections at `address` ("host:port"); None if something accepts them.

    Waits at most 1 s for the connection. Raises ValueError if `address` has another form.
    """
    try:
        with socket.create_connection(split_address(address), timeout=_PROBE_SECONDS):
            return None
    except socket.gaierror:
        return "name does not resolve"
    except TimeoutError:
        return f"no answer within {_PROBE_SECONDS:g} s"
    except OSError as error:
        return _KNOWN.get(error.errno or 0, error.strerror or str(error))


def probe_all(addresses: Mapping[str, str]) -> dict[str, str]:
    """Return {task: reason} for the tasks that accept no connections; {} if all do.

    `addresses` is {task: "host:port"}. Up to 16 are tried at once, each as by `probe`.
    """
    with ThreadPoolExecutor(16) as pool:
        reasons = pool.map(probe, addresses.values())
    return {task: reason for task, reason in zip(addresses, reasons, strict=True) if reason}


def require_own(task: str, address: str) -> None:
    """Raise TaskFailure (`cluster_broke`) if a user other than root and this one holds the port of `address`.

    The port is the one on which `task` is to listen. This class of failure allows a restart: a program that
    got the port by chance may soon release it.
    """
    port = split_address(address)[1]
    if stranger := stranger_at(port):
        remedy = f"stop that; as root `ss -ltnp sport = :{port}` on this host shows it"
        raise TaskFailure(CLUSTER_BROKE, f"{task} cannot listen on port {port}, held by {stranger}: {remedy}")


def stranger_at(port: int) -> str:
    """Return in words which user other than root and this one holds a port, and by which process.

    Return "" if there is none. A port that is held for only one address or address family counts as held,
    though TensorFlow itself would still listen there.
    """
    trusted = {0, os.geteuid()}
    strangers = [holder for holder in read_holders([port]) if holder.uid not in trusted]
    if not strangers:
        return ""
    return f"user {user_of(strangers[0])}, by {in_words(strangers[0])}"
