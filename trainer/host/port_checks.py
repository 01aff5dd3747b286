"""The host check `ports`: whether the ports of a host's tasks are free or held by these tasks.

Everything is read from /proc, because a host may lack `ss`.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .check import Finding, failed, ok, warning
from .host_facts import text_of
from .peer_probes import LISTENER
from .task_units import parse_show, systemctl, unit_name
from .wording import cut

# The kernel gives an unused port of this range to any connection that a program opens.
USUAL_EPHEMERAL = (32768, 60999)
LONGEST_COMMAND = 100
_UNIT = re.compile(r"[^/]+\.(?:service|scope)")


@dataclass(frozen=True)
class TaskPort:
    """The port of a task of the plan."""

    job: str
    index: int
    port: int

    @property
    def name(self) -> str:
        """The task's name, such as "worker0"."""
        return f"{self.job}{self.index}"

    @property
    def units(self) -> tuple[str, ...]:
        """The systemd units that may hold the port: a run may let a server listen in place of a worker."""
        jobs = ("worker", "server") if self.job == "worker" else (self.job,)
        return tuple(unit_name(job, self.index) for job in jobs)


@dataclass(frozen=True)
class Holder:
    """The process that holds a port: its user, pid, program, systemd unit ("" for none) and command line.

    `pid` is 0 if the process cannot be seen. It may be in a container; or this host is a container whose root
    does not see other users' open files; or the caller is a task, whose sandbox shows only its own user's
    processes.
    """

    port: int
    uid: int
    pid: int = 0
    program: str = ""
    unit: str = ""
    command: str = ""


@dataclass(frozen=True)
class PortFacts:
    """The `holders` of some ports, the ephemeral range, and the ports that are reserved from it."""

    holders: tuple[Holder, ...]
    ephemeral: tuple[int, int] = USUAL_EPHEMERAL
    reserved: str = ""


def read_port_facts(ports: Sequence[int], root: Path = Path("/")) -> PortFacts:
    """Return the holders of these TCP ports. Only root sees the processes of other users."""
    proc = root / "proc"
    sockets: dict[int, tuple[int, int]] = {}
    for name in ("tcp", "tcp6"):
        sockets.update(parse_sockets(text_of(proc / "net" / name), ports))
    pids = dict(_owners(proc, set(sockets))) if sockets else {}
    holders = {_holder(proc, port, uid, pids.get(inode, 0)) for inode, (port, uid) in sockets.items()}
    ip = proc / "sys" / "net" / "ipv4"
    return PortFacts(
        holders=tuple(sorted(holders, key=lambda holder: (holder.port, holder.pid))),
        ephemeral=parse_range(text_of(ip / "ip_local_port_range")),
        reserved=text_of(ip / "ip_local_reserved_ports").strip(),
    )


def _holder(proc: Path, port: int, uid: int, pid: int) -> Holder:
    if not pid:
        return Holder(port, uid)
    process = proc / str(pid)
    command = cut(text_of(process / "cmdline").replace("\0", " ").strip(), LONGEST_COMMAND)
    program, unit = text_of(process / "comm").strip(), unit_of(text_of(process / "cgroup"))
    return Holder(port, uid, pid, program, unit, command)


def parse_sockets(text: str, ports: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return inode -> port and uid, for the sockets in /proc/net/tcp with one of these local ports.

    A socket without a process has the inode 0 and is left out: its port can be listened on.
    """
    found = {}
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10:
            continue
        port, inode = int(fields[1].rpartition(":")[2], 16), int(fields[9])
        if inode and port in ports:
            found[inode] = (port, int(fields[7]))
    return found


def parse_range(text: str) -> tuple[int, int]:
    """Parse /proc/sys/net/ipv4/ip_local_port_range: the first and the last port."""
    values = text.split()
    return (int(values[0]), int(values[1])) if len(values) == 2 else USUAL_EPHEMERAL


def unit_of(cgroups: str) -> str:
    """Return the systemd unit in /proc/<pid>/cgroup; "" if there is none."""
    units = [part for line in cgroups.splitlines() for part in line.split("/") if _UNIT.fullmatch(part)]
    return units[-1] if units else ""


def _owners(proc: Path, inodes: set[int]) -> Iterator[tuple[int, int]]:
    """Yield inode and pid for each of these sockets."""
    for process in proc.iterdir():
        if not process.name.isdigit():
            continue
        with suppress(OSError):  # the process may end meanwhile
            for link in os.scandir(process / "fd"):
                target = os.readlink(link.path)  # noqa: PTH115 - Python 3.8 has no other
                if target.startswith("socket:[") and int(target[8:-1]) in inodes:
                    yield int(target[8:-1]), int(process.name)


def port_check(tasks: Sequence[TaskPort], facts: PortFacts, running: Mapping[str, int]) -> Finding:
    """Return the check `ports` for the tasks of a host.

    `running` maps each running unit of a task to its uid. A holder that cannot be seen is taken for the task
    if it has the same uid.
    """
    taken, own = [], []
    for task in tasks:
        holders = [holder for holder in facts.holders if holder.port == task.port and not is_doctor(holder)]
        foreign = [holder for holder in holders if not _is_own(holder, task, running)]
        taken += [f"port {task.port} of {task.name} is held by {_in_full(holder)}" for holder in foreign]
        own += [f"{task.port} is {task.name}'s" if holders else f"{task.port} ({task.name}) is free"]
    if taken:
        return failed(
            "; ".join(taken),
            "stop that program, or give the host's tasks other ports: trainer_base_port, or "
            + ", ".join(f"trainer_{job}_port" for job in sorted({task.job for task in tasks}))
            + ", in host_vars of this host",
        )
    random = [task for task in tasks if _may_be_taken(task.port, facts)]
    if random:
        first, last = facts.ephemeral
        where = ", ".join(f"port {task.port} of {task.name}" for task in random)
        return warning(
            f"{where}: any connection may take a port from {first} to {last} on this host",
            f"set trainer_base_port below {first}, or keep the ports with sysctl "
            f"net.ipv4.ip_local_reserved_ports={','.join(str(task.port) for task in random)}",
        )
    return ok(", ".join(own))


def _is_own(holder: Holder, task: TaskPort, running: Mapping[str, int]) -> bool:
    if holder.pid:
        return holder.unit in task.units
    return any(running.get(unit) == holder.uid for unit in task.units)


def is_doctor(holder: Holder) -> bool:
    """Return whether the holder is a listener of doctor.yml, which shares its ports and soon ends."""
    return holder.program == LISTENER and holder.uid == 0


def stranger_at(port: int) -> str:
    """Return which other user holds a port, and by what; "" if it is free, root's, or this user's.

    TensorFlow itself would still listen if another user holds the port only for one address or family.
    """
    trusted = {0, os.geteuid()}
    strangers = [holder for holder in read_port_facts([port]).holders if holder.uid not in trusted]
    if not strangers:
        return ""
    return f"user {_user(strangers[0])}, by {_words(strangers[0])}"


def _in_full(holder: Holder) -> str:
    """Return the words for a holder, with user and command if its process can be seen."""
    if not holder.pid:
        return _words(holder)
    command = f": {holder.command}" if holder.command else ""
    return f"{_words(holder)} of user {_user(holder)}{command}"


def _user(holder: Holder) -> str:
    try:
        return pwd.getpwuid(holder.uid).pw_name
    except KeyError:
        return "without a name"


def _words(holder: Holder) -> str:
    if not holder.pid:
        return f"a process of the user with id {holder.uid} that cannot be seen from here"
    unit = f", {holder.unit}" if holder.unit else ""
    return f"{holder.program} (pid {holder.pid}{unit})"


def _may_be_taken(port: int, facts: PortFacts) -> bool:
    return facts.ephemeral[0] <= port <= facts.ephemeral[1] and not any(
        int(first) <= port <= int(last or first)
        for first, _, last in (part.partition("-") for part in facts.reserved.split(",") if part)
    )


def task_ports(tasks: Sequence[Mapping[str, object]]) -> list[TaskPort]:
    """Return the ports of tasks of the plan."""
    return [TaskPort(str(task["job"]), int(str(task["index"])), int(str(task["port"]))) for task in tasks]


def running_units(ports: Sequence[TaskPort]) -> dict[str, int]:
    """Return unit -> uid, for the units of these tasks that run now."""
    units = [unit for port in ports for unit in port.units]
    try:
        printed = systemctl("show", "--property=Id,MainPID", *units)
    except OSError:  # the check `system` reports that systemctl is missing
        return {}
    running = {}
    for values in parse_show(printed):
        with suppress(OSError, ValueError):  # the process may have ended meanwhile
            if pid := int(values["MainPID"]):
                running[values["Id"]] = Path(f"/proc/{pid}").stat().st_uid
    return running
