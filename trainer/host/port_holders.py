"""The processes that hold TCP ports of a host.

Everything is read from /proc, because a host may lack `ss`.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .whole_files import text_of
from .wording import cut

LONGEST_COMMAND = 100
_UNIT = re.compile(r"[^/]+\.(?:service|scope)")


@dataclass(frozen=True)
class Holder:
    """The process that holds a port.

    Attributes:
        port: the port.
        uid: the id of the user.
        pid: the process; 0 if it cannot be seen, for one of three reasons: it is in a container; this host is
            a container whose root does not see other users' open files; the caller is a task, whose sandbox
            shows only processes of its own user. Then the following texts are "".
        program: the program's name.
        unit: the systemd unit; "" for none.
        command: the command line, cut to 100 characters.

    """

    port: int
    uid: int
    pid: int = 0
    program: str = ""
    unit: str = ""
    command: str = ""


def read_holders(ports: Sequence[int], root: Path = Path("/")) -> tuple[Holder, ...]:
    """Return the holders of these TCP ports, sorted by port, then by pid; () if nothing holds them.

    Sockets in every state count, also connections from such a port. A caller other than root does not see
    other users' processes; their holders have the pid 0. `root` is the directory in which proc/ is.
    """
    proc = root / "proc"
    sockets: dict[int, tuple[int, int]] = {}
    for name in ("tcp", "tcp6"):
        sockets.update(parse_sockets(text_of(proc / "net" / name), ports))
    pids = dict(_owners(proc, set(sockets))) if sockets else {}
    holders = {_holder(proc, port, uid, pids.get(inode, 0)) for inode, (port, uid) in sockets.items()}
    return tuple(sorted(holders, key=lambda holder: (holder.port, holder.pid)))


def _holder(proc: Path, port: int, uid: int, pid: int) -> Holder:
    if not pid:
        return Holder(port, uid)
    process = proc / str(pid)
    command = cut(text_of(process / "cmdline").replace("\0", " ").strip(), LONGEST_COMMAND)
    program, unit = text_of(process / "comm").strip(), unit_of(text_of(process / "cgroup"))
    return Holder(port, uid, pid, program, unit, command)


def parse_sockets(text: str, ports: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return {inode: (port, uid)} for the sockets in the text of /proc/net/tcp with one of these local ports.

    Sockets in every state count, except sockets without a process (inode 0): a task can listen on their
    ports.
    """
    sockets = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10:
            continue
        port, inode = int(fields[1].rpartition(":")[2], 16), int(fields[9])
        if inode and port in ports:
            sockets[inode] = (port, int(fields[7]))
    return sockets


def unit_of(cgroups: str) -> str:
    """Return the innermost systemd service or scope in the text of /proc/<pid>/cgroup; "" if there is none.

    Example: unit_of("0::/system.slice/ssh.service") -> "ssh.service"
    """
    units = [part for line in cgroups.splitlines() for part in line.split("/") if _UNIT.fullmatch(part)]
    return units[-1] if units else ""


def _owners(proc: Path, inodes: set[int]) -> Iterator[tuple[int, int]]:
    """Yield (inode, pid) for each process that has one of these sockets open, and that this user can see."""
    for process in proc.iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):  # the process may end meanwhile
            for link in os.scandir(process / "fd"):
                target = os.readlink(link.path)  # noqa: PTH115 - Python 3.8 has no other
                if target.startswith("socket:[") and int(target[8:-1]) in inodes:
                    yield int(target[8:-1]), int(process.name)


def user_of(holder: Holder) -> str:
    """Return the name of the user who holds the port; "without a name" if no name belongs to the uid."""
    try:
        return pwd.getpwuid(holder.uid).pw_name
    except KeyError:
        return "without a name"


def in_words(holder: Holder) -> str:
    """Return the holder's process in words, such as "python3 (pid 12, psfleet-ps@0.service)".

    If the process cannot be seen, the words say so, with the user's id.
    """
    if not holder.pid:
        return f"a process of the user with id {holder.uid} that cannot be seen from here"
    unit = f", {holder.unit}" if holder.unit else ""
    return f"{holder.program} (pid {holder.pid}{unit})"
