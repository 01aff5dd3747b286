"""The host check `ports`: whether the ports of a host's tasks are free, or held by these tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..host.check import Finding, failed, ok, warning
from ..host.port_holders import Holder, in_words, read_holders, user_of
from ..host.task_units import parse_show, systemctl, unit_name
from ..host.whole_files import text_of
from ..network.peer_probes import LISTENER

# The usual ephemeral range: the kernel gives any connection that a program opens a free port of this range.
USUAL_EPHEMERAL = (32768, 60999)


@dataclass(frozen=True)
class TaskPort:
    """A task of the plan, and the TCP port at which it listens."""

    job: str
    index: int
    port: int

    @property
    def name(self) -> str:
        """The task's name, such as "worker0"."""
        return f"{self.job}{self.index}"

    @property
    def units(self) -> tuple[str, ...]:
        """The systemd units that may listen at the port: of a worker also its server, psfleet-server@<index>.

        A run may have the server listen in place of the worker.
        """
        jobs = ("worker", "server") if self.job == "worker" else (self.job,)
        return tuple(unit_name(job, self.index) for job in jobs)


@dataclass(frozen=True)
class PortFacts:
    """What holds some TCP ports of a host, and which ports the kernel may give to any connection.

    - `holders`: the processes that hold one of the ports. `ephemeral`: the (first, last) port that the kernel
      may give to a connection.
    - `reserved`: the text of ip_local_reserved_ports, such as "2222-2224,8080": exceptions from `ephemeral`.
    """

    holders: tuple[Holder, ...]
    ephemeral: tuple[int, int] = USUAL_EPHEMERAL
    reserved: str = ""


def read_port_facts(ports: Sequence[int], root: Path = Path("/")) -> PortFacts:
    """Return the holders of these TCP ports, and the host's ephemeral and reserved ports."""
    ip = root / "proc" / "sys" / "net" / "ipv4"
    return PortFacts(
        holders=read_holders(ports, root),
        ephemeral=parse_range(text_of(ip / "ip_local_port_range")),
        reserved=text_of(ip / "ip_local_reserved_ports").strip(),
    )


def parse_range(text: str) -> tuple[int, int]:
    """Return (first, last) in the text of ip_local_port_range of /proc; USUAL_EPHEMERAL if it is invalid."""
    values = text.split()
    return (int(values[0]), int(values[1])) if len(values) == 2 else USUAL_EPHEMERAL


def ports_finding(tasks: Sequence[TaskPort], facts: PortFacts, running: Mapping[str, int]) -> Finding:
    """Return the finding of the check `ports` for the tasks of a host.

    It is failed if something other than a task holds the task's port, a warning if the kernel may give the
    port to any connection, else ok. `running` is what `running_units` returned. If the process of a holder
    cannot be seen, it counts as the task if it has the uid of the task's running unit.
    """
    conflicts, own = [], []
    for task in tasks:
        holders = [holder for holder in facts.holders if holder.port == task.port and not is_doctor(holder)]
        foreign = [holder for holder in holders if not _is_own(holder, task, running)]
        port = f"port {task.port} of {task.name}"
        conflicts += [f"{port} is held by {_holder_in_words(holder)}" for holder in foreign]
        own += [f"{task.port} is {task.name}'s" if holders else f"{task.port} ({task.name}) is free"]
    if conflicts:
        return failed(
            "; ".join(conflicts),
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
    """Return whether the holder of a port is a listener of doctor.yml; it shares the port, and ends soon."""
    return holder.program == LISTENER and holder.uid == 0


def _holder_in_words(holder: Holder) -> str:
    """Return the holder of a port in words, with its user and command if its process can be seen."""
    if not holder.pid:
        return in_words(holder)
    command = f": {holder.command}" if holder.command else ""
    return f"{in_words(holder)} of user {user_of(holder)}{command}"


def _may_be_taken(port: int, facts: PortFacts) -> bool:
    return facts.ephemeral[0] <= port <= facts.ephemeral[1] and not any(
        int(first) <= port <= int(last or first)
        for first, _, last in (part.partition("-") for part in facts.reserved.split(",") if part)
    )


def task_ports(tasks: Sequence[Mapping[str, object]]) -> list[TaskPort]:
    """Return the port of each task of the plan; a task has at least `job`, `index` and `port`."""
    return [TaskPort(str(task["job"]), int(str(task["index"])), int(str(task["port"]))) for task in tasks]


def running_units(ports: Sequence[TaskPort]) -> dict[str, int]:
    """Return {unit: uid of its main process} for the units of these tasks that run now.

    Return {} if the host has no systemctl.
    """
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
