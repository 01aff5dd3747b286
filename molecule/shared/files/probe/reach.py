"""Print, as JSON, what a process reaches on its host: services, families of sockets, system calls.

The arguments are a file with the paths of the host's unix sockets, one a line, and the unit's name.
"""

import ctypes
import errno
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

KINDS = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW)
FAMILIES = {family.value: family.name for family in socket.AddressFamily}
LAST_FAMILY = 46
ARM = os.uname().machine == "aarch64"
# System calls by number, with arguments that the kernel refuses with another error than a filter's EPERM.
CALLS: dict[str, tuple[object, ...]] = {
    "io_uring_setup": (425, 1, None),
    "io_uring_enter": (426, -1, 0, 0, 0, None, 0),
    "io_uring_register": (427, -1, 0, None, 0),
    "add_key": (217 if ARM else 248, None, None, None, 0, 0),
    "request_key": (218 if ARM else 249, None, None, None, 0),
    "keyctl": (219 if ARM else 250, -1, 0, 0, 0, 0),
    "userfaultfd": (282 if ARM else 323, -1),
    "perf_event_open": (241 if ARM else 298, None, 0, 0, -1, -1),
    "ptrace": (117 if ARM else 101, -1, 0, None, None),
}


def outcome(action: Callable[..., object], *arguments: object) -> str:
    """Return "done", or the name of the error, such as "EPERM"."""
    try:
        action(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    return "done"


def connects(path: str) -> bool:
    """Return whether a unix socket of any kind takes a client at this path, at once or later (EAGAIN)."""
    for kind in KINDS[:3]:
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.setblocking(False)
            if client.connect_ex(path) in {0, errno.EAGAIN}:
                return True
    return False


def opens(family: int) -> bool:
    """Return whether the family of sockets is known, whatever else the kernel says of such a socket."""
    return {outcome(socket.socket, family, kind) for kind in KINDS} != {"EAFNOSUPPORT"}


def call(number: int, *arguments: object) -> None:
    """Make a system call. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number), *arguments) == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def ask_resolver(kind: socket.SocketKind) -> None:
    """Ask systemd-resolved, at the address that /etc/resolv.conf has of it. Raises OSError."""
    with socket.socket(socket.AF_INET, kind) as client:
        client.settimeout(5)
        client.connect(("127.0.0.53", 53))
        if kind == socket.SOCK_DGRAM:
            client.send(b"question")
            client.recv(100)


found = {
    "unit": sys.argv[2],
    "services": list(filter(connects, Path(sys.argv[1]).read_text(encoding="utf-8").splitlines())),
    "resolver": [outcome(ask_resolver, kind) for kind in KINDS[:2]],
    "families": [FAMILIES.get(family, str(family)) for family in range(1, LAST_FAMILY) if opens(family)],
    "calls": {name: outcome(call, *arguments) for name, arguments in CALLS.items()},
    "itself": {
        "resolv.conf": outcome(Path("/run/systemd/resolve/stub-resolv.conf").read_text),
        "nice": outcome(os.nice, 1),
        "affinity": outcome(os.sched_setaffinity, 0, os.sched_getaffinity(0)),
        "interfaces": outcome(socket.if_nameindex),
    },
    "http_proxy": os.environ.get("http_proxy"),
}
sys.stdout.write(json.dumps(found) + "\n")
