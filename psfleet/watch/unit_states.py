"""What train.yml asks each host of its tasks while a run goes on, and what the answers mean."""

import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from psfleet.watch.lead_reading import SEPARATOR, as_daemon, bytes_of
from psfleet.watch.notices import Notice, Reasons
from psfleet.watch.wording import in_a_line
from trainer.host.boots import boot_file, rebooted_command
from trainer.host.saved_places import NOTES, SavedPlace, noted_places
from trainer.host.task_traces import number, object_in, program_failure, why_ended
from trainer.host.task_units import counted, is_alive, parse_show, unit_name
from trainer.host.wording import grouped

# Of a task that systemd does not start again.
FAILED = "failed"
RESTARTING = "restarting"
REBOOTED = "its host was rebooted"

# Of a host without an answer. It is asked several times in each.
SILENT_SECONDS = 60.0

# In a row, in which a task that is needed does not run, before people hear of it.
ABSENT_LOOKS = 2

_LOG_BYTES = 16384


@dataclass(frozen=True)
class UnitState:
    """How a task is: `trouble` is `FAILED`, `restarting` or empty, `why` it last failed.

    `rebooted`: its host was booted since it was started.
    `saves` is where its program saves, `rate` its steps a second while it runs, by its newest record.
    """

    alive: bool
    trouble: str
    exit_code: int | None
    restarts: int
    why: str
    rebooted: bool = False
    saves: tuple[SavedPlace, ...] = ()
    rate: float | None = None


@dataclass
class Units:
    """What systemd says of the tasks (task -> host), asked of each host by the watcher."""

    hosts: Mapping[str, str]
    troubles: dict[str, str] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    # A second, of those that run and record their own.
    rates: dict[str, float | None] = field(default_factory=dict)
    # What people were told of those that are given up; how often in a row others were not there.
    _failures: dict[str, str] = field(default_factory=dict)
    _absent: dict[str, int] = field(default_factory=dict)
    _rebooted: set[str] = field(default_factory=set)
    _reasons: Reasons = field(default_factory=Reasons)
    # When each host was heard last, and those of which people were told that they are silent.
    _heard: dict[str, float] = field(default_factory=dict)
    _silent: set[str] = field(default_factory=set)

    @property
    def given_up(self) -> str:
        """The first of which systemd gave up, and why, in words; empty for none."""
        return next(iter(self._failures.values()), "")

    def answered(
        self,
        host: str,
        states: Mapping[str, UnitState],
        at: float,
        needed: Container[str] = (),
        step: int = 0,
    ) -> Iterator[Notice]:
        """Take how a host's tasks are, and tell of those that are lost or given up, or that run again.

        Of the `needed` ones, which stay as long as the run goes on, also of those that do not run.
        """
        self._heard[host] = at
        if host in self._silent:
            self._silent.remove(host)
            yield Notice(f"the host {host} answers again", good=True)
        for task, state in states.items():
            self.troubles[task] = state.trouble
            (self.running.add if state.alive and not state.trouble else self.running.discard)(task)
            is_gone = not (state.alive or state.trouble)
            if is_gone and state.rebooted:
                self.troubles[task] = REBOOTED
                if task not in self._rebooted:
                    by = f" by step {step} of the run" if step else ""
                    yield Notice(f"{task} does not run any more: {host} went down{by}, and was booted since")
                self._rebooted.add(task)
                continue
            self._rebooted.discard(task)
            is_absent = task in needed and is_gone
            self._absent[task] = self._absent.get(task, 0) + 1 if is_absent else 0
            if is_absent:
                self.troubles[task] = "does not run"
                # At the end of a run they leave before the lead says that it is over.
                if self._absent[task] == ABSENT_LOOKS:
                    why = "systemd does not start it again"
                    yield Notice(f"{task} on {host} does not run any more, and {why}")
            elif state.trouble != FAILED:
                if self._failures.pop(task, ""):
                    yield Notice(f"{task} on {host} runs again", good=True)
            elif task not in self._failures:
                how = f"exit code {state.exit_code}, and systemd does not start it again"
                why = self._reasons.of(task, state.why)
                self._failures[task] = f"{task} on {host} failed, {how}: {why}"
                yield Notice(self._failures[task])

    def goes_on(self, task: str) -> bool:
        """Tell whether a task runs, or is about to run again, by what its host said last."""
        return task in self.running or self.troubles.get(task) == RESTARTING

    def answering(self, at: float, seconds: float) -> set[str]:
        """Return the hosts that were heard in the last seconds."""
        return {host for host, heard in self._heard.items() if at - heard <= seconds}

    def look(self, at: float) -> Iterator[Notice]:
        """Tell of hosts that have not been heard for long."""
        for task, host in self.hosts.items():
            if at - self._heard.setdefault(host, at) < SILENT_SECONDS:
                continue
            self.troubles[task] = "host does not answer"
            self.running.discard(task)
            self.rates.pop(task, None)
            if host not in self._silent:
                self._silent.add(host)
                yield Notice(f"the host {host} does not answer: nothing is known of its tasks")


def unit_commands(run: Mapping[str, Any], paths: Mapping[str, str], user: str) -> dict[str, str]:
    """Return for each host the command that prints what `unit_states` reads, of what `read_command` takes."""
    commands, configuration = {}, Path(paths["configuration_directory"])
    for host, tasks in grouped((task["host"], task) for task in run["tasks"]).items():
        units = [unit_name(task["job"], task["index"]) for task in tasks]
        logs = [f"{paths['log_directory']}/{run['id']}/{task['name']}.out" for task in tasks]
        read = [bytes_of(log, "tail", most=_LOG_BYTES) for log in logs]
        if run["settings"]["program"]:
            left = f"{paths['state_directory']}/runs/{run['id']}"
            read += [bytes_of(f"{left}/{NOTES}/{task['name']}.jsonl", "head", _LOG_BYTES) for task in tasks]
            read += [_last_step(f"{left}/events/{task['name']}.jsonl") for task in tasks]
        ends = "; ".join(f"echo; echo {SEPARATOR}; {each}" for each in read)
        properties = "Id,ActiveState,SubState,Result,ExecMainStatus,NRestarts,Job"
        boots = [boot_file(configuration, task["job"], task["index"]) for task in tasks]
        commands[host] = (
            f"{rebooted_command(boots)}; echo; "
            f"systemctl show --property={properties} {shlex.join(units)}; {as_daemon(user, 'sh', '-c', ends)}"
        )
    return commands


def _last_step(events: str) -> str:
    """Return the command that prints the time and a task's newest record of steps."""
    told = shlex.quote('"event":"step"')
    return f"date +%s; {bytes_of(events, 'tail')} | grep -aF {told} | tail -n 1"


def _rate(answer: str) -> float | None:
    """Return the steps a second of a record, no more than one that takes none any more can have by now."""
    time, _, line = answer.strip().partition("\n")
    now, record = counted(time.strip()), object_in(line)
    steps, seconds, wall = (number(record.get(name)) for name in ("steps", "seconds", "wall"))
    if now is None or steps is None or seconds is None or wall is None:
        return None
    lasted = max(seconds, now - wall)
    return steps / lasted if steps >= 0 and lasted > 0 else None


def unit_states(tasks: Sequence[Mapping[str, Any]], answer: str) -> dict[str, UnitState]:
    """Read what the host of these tasks printed. Raises ValueError where systemd said nothing of one."""
    shown, *ends = answer.split(SEPARATOR, 3 * len(tasks))
    told = zip(*(chain(ends[len(tasks) * part :], repeat("")) for part in range(3)), strict=False)
    units = {values.get("Id"): values for values in parse_show(shown)}
    rebooted = {line.strip().rpartition("/")[2] for line in shown.splitlines()}
    states = {}
    for task, (log, noted, step) in zip(tasks, told, strict=False):
        values = units.get(unit_name(task["job"], task["index"]), {})
        if "ActiveState" not in values:
            raise ValueError(f"systemctl said nothing of {task['name']}")
        failed, lines = values["ActiveState"] == FAILED, log.splitlines()
        restarting = values.get("SubState") == "auto-restart"
        runs = is_alive(values) and not (failed or restarting)
        name, result = task["name"], values.get("Result", "")
        why = why_ended(name, result, lines) if failed else program_failure(name, lines)
        states[name] = UnitState(
            alive=is_alive(values),
            trouble=FAILED if failed else RESTARTING if restarting else "",
            exit_code=counted(values.get("ExecMainStatus")),
            restarts=counted(values.get("NRestarts")) or 0,
            why=in_a_line(why, 200),
            rebooted=boot_file(Path(), task["job"], task["index"]).name in rebooted,
            saves=tuple(noted_places(noted)),
            rate=_rate(step) if runs else None,
        )
    return states
