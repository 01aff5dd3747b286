"""What train.yml asks the lead's host while a run goes on, and what the answers mean."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from psfleet.watch.notices import TOLD_EVENTS
from trainer.contract.progress import Progress, last_line_of
from trainer.host.task_traces import number, object_in
from trainer.host.task_units import counted, is_alive, unit_name
from trainer.host.wording import grouped

SEPARATOR = "--psfleet--"


def read_command(run: Mapping[str, Any], paths: Mapping[str, str], user: str) -> str:
    """Return the command that prints what `Reading.of` reads, for the shell of the lead's host.

    `run` is as decide_run returns it, `paths` the fact `cluster_paths`, `user` that of the tasks. Only a
    program's output is read.
    """
    lead = run["lead"]
    run_directory = f"{paths['state_directory']}/runs/{run['id']}"
    log = f"{paths['log_directory']}/{run['id']}/{lead['name']}.out" if run["settings"]["program"] else ""
    properties = "ActiveState,Job,NRestarts,ExecMainStartTimestampMonotonic"
    told = shlex.quote(f'"event":"({"|".join(TOLD_EVENTS)})"')
    reading = [
        f"stat --file-system --format '%a %S' {shlex.quote(run_directory)}",
        f"echo {SEPARATOR}",
        bytes_of(f"{run_directory}/progress.json", "head"),
        f"echo; echo {SEPARATOR}",
        f"{bytes_of(_events(run, paths), 'tail')} | grep -aE {told} | tail -n 20",
        f"echo {SEPARATOR}",
        *([bytes_of(log, "tail", most=4096)] if log else []),
    ]
    commands = [
        f"systemctl show --property={properties} {unit_name(lead['job'], lead['index'])}",
        f"echo {SEPARATOR}; cat /proc/uptime; echo {SEPARATOR}",
        as_daemon(user, "sh", "-c", "; ".join(reading)),
    ]
    return "; ".join(commands)


def bytes_of(path: str, program: str, most: int = 65536) -> str:
    """Return the command that prints the first (`head`) or last bytes (`tail`) of a file, if there is one."""
    # A FIFO is waited for.
    return f"timeout 10 {program} -c {most} {shlex.quote(path)} 2>/dev/null"


def _events(run: Mapping[str, Any], paths: Mapping[str, str]) -> str:
    return f"{paths['state_directory']}/runs/{run['id']}/events/{run['lead']['name']}.jsonl"


def as_daemon(group: str, *command: str) -> str:
    """Return the command for somebody who may read what a group may, and nothing that is root's.

    The tasks can put links where they write. Nor is it their own user, who could meddle with the process.
    """
    rights = ["--reuid=daemon", f"--regid={group}", "--clear-groups", "--no-new-privs"]
    return shlex.join(["setpriv", *rights, *command])


def age_command(run: Mapping[str, Any], paths: Mapping[str, str], user: str) -> str:
    """Return the command that prints what `age_of` reads: the lead's records of its starts, and the time."""
    started = shlex.quote('"event":"started"')
    events = shlex.quote(_events(run, paths))
    command = f"timeout 10 grep -a {started} {events} | tail -n 50 | tail -c 1000000"
    return f"{as_daemon(user, 'sh', '-c', command)}; date +%s.%N"


def places(run: Mapping[str, Any], paths: Mapping[str, str]) -> list[str]:
    """Return where the tasks of each host log to, a line for each host."""
    hosts = grouped((task["host"], task["name"]) for task in run["tasks"])
    return [
        f"logs: {host}:{paths['log_directory']}/{run['id']}/<task>.out of {', '.join(names)}"
        for host, names in hosts.items()
    ]


@dataclass(frozen=True)
class Reading:
    """How the run stands, the lead's unit, its newest records of `TOLD_EVENTS`, and the room for more."""

    progress: Progress
    alive: bool = True
    restarts: int = 0
    free_bytes: float | None = None
    records: tuple[Mapping[str, object], ...] = ()

    @classmethod
    def of(cls, answer: str) -> "Reading":
        """Read what the command printed. Raises ValueError where systemd said nothing of the lead."""
        shown, uptime, room, text, told, log = [*answer.split(SEPARATOR, 5), "", "", "", "", ""][:6]
        unit = dict(line.split("=", 1) for line in shown.split() if "=" in line)
        if "ActiveState" not in unit:
            raise ValueError("systemctl said nothing of the lead")
        started = _count(unit.get("ExecMainStartTimestampMonotonic")) / 1e6
        up = number(float(uptime.split()[0])) if uptime.split() else None
        elapsed = max(up - started, 0.0) if started and up is not None else None
        progress = Progress.from_mapping(object_in(text))
        progress = replace(progress, elapsed=elapsed, last_line=last_line_of(log))
        records = tuple(filter(None, map(object_in, told.splitlines())))
        blocks, size = [*map(counted, room.split()), None, None][:2]
        free = None if blocks is None or size is None else number(blocks * size)
        return cls(progress, is_alive(unit), _count(unit.get("NRestarts")), free, records)


def age_of(answer: str, reading: Reading) -> float:
    """Return how long the run, or its present part, has been going on, in seconds.

    Its first process has left the oldest of as many records of a start as the lead was started. Where
    these are not there, the age of the present process.
    """
    *starts, now = answer.splitlines() or [""]
    records = map(object_in, starts[-(reading.restarts + 1) :])
    walls = [number(record["wall"]) for record in records if "wall" in record]
    try:
        at, began = number(float(now)), walls[0]
    except (IndexError, ValueError):
        at = began = None
    if at is None or began is None:
        return reading.progress.elapsed or 0.0
    return max(at - began, 0.0)


def _count(text: str | None) -> int:
    return int(number(int(text or 0)) or 0)


def without_stale_word(reading: Reading, stale: Progress) -> Reading:
    """Return the reading, as of a run that is starting where its word is of the run's earlier part."""
    if reading.alive and reading.progress.same_word(stale):
        return replace(reading, progress=Progress("starting", elapsed=reading.progress.elapsed))
    return reading
