"""The command by which train.yml polls the lead's host while a run goes on, and its answer."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from plugins.module_utils.tasks.boots import unless_going_down
from psfleet.watch.notices import NOTICED_EVENTS
from trainer.contract.progress import Progress, last_line_of
from trainer.host.task_traces import LOG_END_BYTES, number, object_in
from trainer.host.task_units import count_in, is_alive, unit_name
from trainer.host.wording import grouped

SEPARATOR = "--psfleet--"


def read_command(run: Mapping[str, Any], paths: Mapping[str, str], user: str) -> str:
    """Return the shell command to run on the lead's host; `Reading.of` takes its output.

    `run` is the result of decide_run, `paths` the fact `cluster_paths`, `user` the tasks' user. The command
    reads the log only if the run has a program.
    """
    lead = run["lead"]
    run_directory = f"{paths['state_directory']}/runs/{run['id']}"
    log = f"{paths['log_directory']}/{run['id']}/{lead['name']}.out" if run["settings"]["program"] else ""
    properties = "ActiveState,Job,NRestarts,ExecMainStartTimestampMonotonic"
    noticed = shlex.quote(f'"event":"({"|".join(NOTICED_EVENTS)})"')
    reading = [
        f"stat --file-system --format '%a %S' {shlex.quote(run_directory)}",
        f"echo {SEPARATOR}",
        bytes_of(f"{run_directory}/progress.json", "head"),
        f"echo; echo {SEPARATOR}",
        f"{bytes_of(_events(run, paths), 'tail')} | grep -aE {noticed} | tail -n 20",
        f"echo {SEPARATOR}",
        *([bytes_of(log, "tail", most=LOG_END_BYTES)] if log else []),
    ]
    commands = [
        f"systemctl show --property={properties} {unit_name(lead['job'], lead['index'])}",
        f"echo {SEPARATOR}; cat /proc/uptime; echo {SEPARATOR}",
        as_daemon(user, "sh", "-c", "; ".join(reading)),
    ]
    return unless_going_down("; ".join(commands))


def bytes_of(path: str, program: str, most: int = 65536) -> str:
    """Return the shell command that prints the first or last bytes of a file, or nothing without a file.

    `program` is `head` for the first, `tail` for the last `most` bytes. The command ends after 10 seconds.
    """
    # Reading a FIFO would wait for a writer.
    return f"timeout 10 {program} -c {most} {shlex.quote(path)} 2>/dev/null"


def _events(run: Mapping[str, Any], paths: Mapping[str, str]) -> str:
    return f"{paths['state_directory']}/runs/{run['id']}/events/{run['lead']['name']}.jsonl"


def as_daemon(group: str, *command: str) -> str:
    """Return the shell command that runs `command`, a program and its arguments, as the user daemon.

    It runs in `group`, so it can read what the group can read, and nothing else. It does not run as root,
    because the tasks can create links in their folders, and not as the tasks' user, whose processes could
    interfere with it.
    """
    rights = ["--reuid=daemon", f"--regid={group}", "--clear-groups", "--no-new-privs"]
    return shlex.join(["setpriv", *rights, *command])


def age_command(run: Mapping[str, Any], paths: Mapping[str, str], user: str) -> str:
    """Return the shell command that prints the lead's newest `started` records, then the host's time.

    `age_of` takes its output. `run` is the result of decide_run, `paths` the fact `cluster_paths`, `user` the
    tasks' user.
    """
    started = shlex.quote('"event":"started"')
    events = shlex.quote(_events(run, paths))
    command = f"timeout 10 grep -a {started} {events} | tail -n 50 | tail -c 1000000"
    return f"{as_daemon(user, 'sh', '-c', command)}; date +%s.%N"


def log_places(run: Mapping[str, Any], paths: Mapping[str, str]) -> list[str]:
    """Return a line for each host of the run with the paths of its tasks' logs.

    `run` is the result of decide_run, `paths` the fact `cluster_paths`.
    Example: ["logs: node1:/var/log/psfleet/run1/<task>.out of ps0, worker0"]
    """
    hosts = grouped((task["host"], task["name"]) for task in run["tasks"])
    return [
        f"logs: {host}:{paths['log_directory']}/{run['id']}/<task>.out of {', '.join(names)}"
        for host, names in hosts.items()
    ]


@dataclass(frozen=True)
class Reading:
    """What the lead's host answered: the run's progress, the state of the lead's unit, newest records.

    `alive` is True if the unit runs or will run, and `restarts` is how often systemd restarted it. `records`
    are the newest event records of NOTICED_EVENTS, oldest first. `free_bytes` is the free space for the run's
    files, None if it is unknown.
    """

    progress: Progress
    alive: bool = True
    restarts: int = 0
    free_bytes: float | None = None
    records: tuple[Mapping[str, object], ...] = ()

    @classmethod
    def of(cls, answer: str) -> "Reading":
        """Return the reading in the output of `read_command`.

        A part of the output that is missing or damaged counts as unknown. Raises ValueError if systemd
        reported nothing about the lead.
        """
        shown, uptime, room, text, noticed, log = [*answer.split(SEPARATOR, 5), "", "", "", "", ""][:6]
        unit = dict(line.split("=", 1) for line in shown.split() if "=" in line)
        if "ActiveState" not in unit:
            raise ValueError("systemctl printed nothing about the lead")
        started = _count(unit.get("ExecMainStartTimestampMonotonic")) / 1e6
        up = number(float(uptime.split()[0])) if uptime.split() else None
        elapsed = max(up - started, 0.0) if started and up is not None else None
        progress = Progress.from_mapping(object_in(text))
        progress = replace(progress, elapsed=elapsed, last_line=last_line_of(log))
        records = tuple(filter(None, map(object_in, noticed.splitlines())))
        blocks, size = [*map(count_in, room.split()), None, None][:2]
        free = None if blocks is None or size is None else number(blocks * size)
        return cls(progress, is_alive(unit), _count(unit.get("NRestarts")), free, records)


def age_of(answer: str, reading: Reading) -> float:
    """Return the seconds for which the run, or its part since it was last resumed, has been going on.

    `answer` is the output of `age_command`. If systemd restarted the lead n times, the record before the n
    newest `started` records is of its first process, and its age counts. If there are fewer records, the
    oldest counts; without any, the age of the present process, or 0.
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


def without_stale_progress(reading: Reading, stale: Progress) -> Reading:
    """Return the reading, with the phase "starting" if its progress is still that of an earlier part.

    `stale` is the progress before the run was resumed. The reading is returned unchanged if its progress
    differs from it, or if the lead's unit does not run.
    """
    if reading.alive and reading.progress.same_content(stale):
        return replace(reading, progress=Progress("starting", elapsed=reading.progress.elapsed))
    return reading
