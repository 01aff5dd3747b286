"""The commands with which train.yml polls each host's units while a run goes on, and their output."""

import shlex
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from plugins.module_utils.saved_places import NOTES, SavedPlace, noted_places
from plugins.module_utils.tasks.boots import boot_file, rebooted_command, unless_going_down
from psfleet.watch.lead_reading import SEPARATOR, as_daemon, bytes_of
from psfleet.watch.notices import Notice, Reasons
from psfleet.watch.screen_text import clock, duration, in_a_line
from trainer.contract.exit_codes import STOPPED
from trainer.host.task_traces import number, object_in, program_failure, why_ended
from trainer.host.task_units import ONLY_SERVES, count_in, is_alive, parse_show, unit_name
from trainer.host.wording import first_of, grouped

# The unit's state after systemd gave up restarting the task.
FAILED = "failed"
RESTARTING = "restarting"
HUNG = "hung"
# Seconds. A running task gives systemd a sign of life every half second; a call to a silent ps may take 5 s.
HUNG_SECONDS = 10
REBOOTED = "its host was rebooted"

# A worker whose place is empty: it left the run in order, or has not joined it yet.
EMPTY = "not in the run"
SILENT = "host does not answer"
ABSENT = "does not run"

# After this time without an answer, or after several polls without one, a host counts as silent.
SILENT_SECONDS = 20.0
POLLS_UNTIL_SILENT = 3

# Consecutive polls without a required task before we warn.
ABSENT_POLLS = 2

_LOG_BYTES = 16384
# The most characters of a task's reason: its own words, and a hint.
_MOST_OF_A_REASON = 600
# What a task writes into its file in `endings` (trainer/process/ending.py).
_ENDED_BY_SIGTERM = f'"exit_code": {STOPPED}}}'
# The name under which the host's clock is printed, among the properties that systemd prints.
_NOW = "Now"


@dataclass(frozen=True)
class UnitState:
    """The state of a task's unit.

    `alive` is True if the task runs or is about to run. `trouble` is `FAILED`, `RESTARTING`, `HUNG` or "".
    `why` is the reason of its last failure, "" if there was none. `quiet_seconds` have passed since its last
    sign of life. `rebooted` is True if its host was booted after the task had started. `saves` are the places
    where its program saves. `rate` is its steps per second by its newest record, None unless it runs.
    `only_serves` is True if its program waits in `server.join()` and does nothing else.
    """

    alive: bool
    trouble: str
    exit_code: int | None
    restarts: int
    why: str
    rebooted: bool = False
    saves: tuple[SavedPlace, ...] = ()
    rate: float | None = None
    quiet_seconds: int = 0
    only_serves: bool = False


@dataclass
class Units:
    """What systemd reports about the tasks of `hosts`, {task: host}; the watcher polls each host.

    Tasks in `may_leave` may end in order while the run goes on. `empty` has the workers that are not in the
    run: they left it, or have not joined yet. `troubles` is {task: word such as `FAILED`, or ""}, and
    `running` are the tasks that run without trouble.
    """

    hosts: Mapping[str, str]
    may_leave: Container[str] = ()
    empty: set[str] = field(default_factory=set)
    silent_seconds: float = SILENT_SECONDS
    troubles: dict[str, str] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    # The running tasks of a program that only serve.
    serving: set[str] = field(default_factory=set)
    # The steps per second of running tasks that record their own steps.
    rates: dict[str, float | None] = field(default_factory=dict)
    # The notices about tasks that systemd gave up, and the consecutive polls in which each task was absent.
    _failures: dict[str, str] = field(default_factory=dict)
    _absent: dict[str, int] = field(default_factory=dict)
    _rebooted: set[str] = field(default_factory=set)
    _reasons: Reasons = field(default_factory=Reasons)
    # When each host answered last, and was first expected to answer; the hosts that were reported as silent.
    _answered_at: dict[str, float] = field(default_factory=dict)
    _expected_at: dict[str, float] = field(default_factory=dict)
    _silent: set[str] = field(default_factory=set)
    # When each task was last seen running, or was first asked about.
    _ran_at: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Set the trouble of the workers in `empty` to EMPTY, before the first answer."""
        self.troubles |= dict.fromkeys(self.empty, EMPTY)

    @property
    def silent_hosts(self) -> tuple[str, ...]:
        """The hosts that were reported as silent and have not answered since, sorted."""
        return tuple(sorted(self._silent))

    def first_failure_of(self, tasks: Iterable[str]) -> str:
        """Return the notice about the first of these tasks that systemd gave up; "" if it gave up none.

        The order of `tasks` counts. systemd has given up a task that failed and is not restarted.
        """
        return next((self._failures[task] for task in tasks if task in self._failures), "")

    def away(self, at: float) -> tuple[str, ...]:
        """Return sentences about tasks that do not run because of their hosts, or for no known reason.

        Their host is silent or was rebooted, or systemd does not start them. `at` is the present time. Tasks
        of one host with the same reason share a sentence; () if there are none.
        """
        why = {SILENT: "{} does not answer", REBOOTED: "{} went down, and was booted since", ABSENT: "on {}"}
        alike = grouped(
            ((self.hosts[task], trouble), task) for task, trouble in self.troubles.items() if trouble in why
        )
        sentences = []
        for (host, trouble), tasks in alike.items():
            seconds = at - min(self._ran_at.get(task, at) for task in tasks)
            verb = "is" if len(tasks) == 1 else "are"
            reason = why[trouble].format(host)
            sentences.append(f"{first_of(tasks)} {verb} not running: {reason}, for {clock(seconds)}")
        return tuple(sentences)

    @property
    def first_failure(self) -> str:
        """The notice about the task that systemd gave up first, in time; "" if it gave up none."""
        return next(iter(self._failures.values()), "")

    def update(
        self,
        host: str,
        states: Mapping[str, UnitState],
        at: float,
        needed: Container[str] = (),
        step: int = 0,
    ) -> Iterator[Notice]:
        """Record the states of a host's tasks; yield notices about lost, hung, given up and recovered tasks.

        Each change is reported once. Tasks in `needed` run as long as the run goes on, so they are also
        reported if they do not run in two consecutive polls. `at` is the present time, `step` the run's
        global step (0: unknown).
        """
        self._answered_at[host] = at
        yield from self._end_silence(host, states, at)
        for task, state in states.items():
            if state.trouble == HUNG != self.troubles.get(task):
                quiet = duration(state.quiet_seconds)
                yield Notice(f"{task} on {host} hangs: no sign of life for {quiet}; its watchdog will end it")
            self._note_state(task, state, at)
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
                yield from self._note_absence(task, state)
            elif task in self.empty and task in self.running:
                self.empty.discard(task)
                yield Notice(f"{task} on {host} joined the run", good=True)
            elif state.trouble != FAILED:
                if self._failures.pop(task, ""):
                    yield Notice(f"{task} on {host} runs again", good=True)
            elif task not in self._failures:
                how = f"exit code {state.exit_code}, and systemd does not start it again"
                why = self._reasons.of(task, state.why)
                self._failures[task] = f"{task} on {host} failed, {how}: {why}"
                yield Notice(self._failures[task])

    def _note_absence(self, task: str, state: UnitState) -> Iterator[Notice]:
        left = task in self.may_leave and state.exit_code == STOPPED
        self.troubles[task] = EMPTY if left or task in self.empty else ABSENT
        # At the end of a run, tasks end before the lead reports that the run is over.
        if self._absent[task] != ABSENT_POLLS or task in self.empty:
            return
        where = f"{task} on {self.hosts[task]}"
        if left:
            self.empty.add(task)
            yield Notice(f"{where} left the run, which goes on")
        else:
            yield Notice(f"{where} does not run any more, and systemd does not start it again")

    def _end_silence(self, host: str, states: Container[str], at: float) -> Iterator[Notice]:
        """Record that a host answers; yield a notice if it was reported as silent.

        The trouble of its tasks that `states` lacks is cleared: another poll reports the lead's state.
        """
        for task, its in self.hosts.items():
            if its == host and task not in states:
                self.troubles.pop(task, None)
                self._ran_at[task] = at
        if host in self._silent:
            self._silent.remove(host)
            yield Notice(f"the host {host} answers again", good=True)

    def _note_state(self, task: str, state: UnitState, at: float) -> None:
        self.troubles[task] = state.trouble
        if state.alive:
            self._ran_at[task] = at
        (self.running.add if state.alive and not state.trouble else self.running.discard)(task)
        (self.serving.add if state.only_serves else self.serving.discard)(task)

    def goes_on(self, task: str) -> bool:
        """Return whether a task runs, hangs or will be restarted, by the last answer of its host.

        False if it failed or ended, or if its host is silent or has not answered yet.
        """
        return task in self.running or self.troubles.get(task) in {RESTARTING, HUNG}

    def answering(self, at: float, seconds: float) -> set[str]:
        """Return the hosts that answered within the last `seconds` before the time `at`."""
        return {host for host, answered in self._answered_at.items() if at - answered <= seconds}

    def report_silent_hosts(self, at: float) -> Iterator[Notice]:
        """Yield a notice for each host that has not answered for `silent_seconds`, once in each silence.

        The silence of a host that never answered begins with the first call. No notice if all tasks of the
        host are in `empty`. Tasks of a silent host no longer count as running.
        """
        for task, host in self.hosts.items():
            self._ran_at.setdefault(task, at)
            silent_from = self._answered_at.get(host, self._expected_at.setdefault(host, at))
            if at - silent_from < self.silent_seconds:
                continue
            self.troubles[task] = EMPTY if task in self.empty else SILENT
            self.running.discard(task)
            self.rates.pop(task, None)
            if host in self._silent:
                continue
            self._silent.add(host)
            if any(its == host for each, its in self.hosts.items() if each not in self.empty):
                yield Notice(f"the host {host} does not answer: nothing is known of its tasks")


def unit_commands(run: Mapping[str, Any], paths: Mapping[str, str], user: str) -> dict[str, str]:
    """Return {host: shell command to run there}, for each host of the run; `unit_states` takes the output.

    `run` is the result of decide_run, `paths` the fact `cluster_paths`, `user` the tasks' user.
    """
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
        properties = (
            "Id,ActiveState,SubState,Result,ExecMainStatus,NRestarts,Job,WatchdogTimestamp,StatusText"
        )
        boots = [boot_file(configuration, task["job"], task["index"]) for task in tasks]
        endings = [
            f"{paths['state_directory']}/runs/{run['id']}/endings/{task['name']}.json" for task in tasks
        ]
        # systemd forgets how a unit ended that was stopped and disabled.
        stopped = as_daemon(user, "timeout", "10", "grep", "-ls", _ENDED_BY_SIGTERM, *endings)
        commands[host] = unless_going_down(
            f"{rebooted_command(boots)}; {stopped}; echo; echo {_NOW}=$(date +%s); echo; "
            f"systemctl show --timestamp=unix --property={properties} {shlex.join(units)}; "
            f"{as_daemon(user, 'sh', '-c', ends)}"
        )
    return commands


def _last_step(events: str) -> str:
    """Return the shell command that prints the host's time and the newest `step` record of `events`.

    `events` is the path of the task's event records. Without such a record, only the time is printed.
    """
    wanted = shlex.quote('"event":"step"')
    return f"date +%s; {bytes_of(events, 'tail')} | grep -aF {wanted} | tail -n 1"


def _rate(answer: str) -> float | None:
    """Return the steps per second of the record in the output of `_last_step`; None if it is unknown.

    The seconds are those of the record, or those since it was written if these are more. So the rate falls
    while no new record is written.
    """
    time, _, line = answer.strip().partition("\n")
    now, record = count_in(time.strip()), object_in(line)
    steps, seconds, wall = (number(record.get(name)) for name in ("steps", "seconds", "wall"))
    if now is None or steps is None or seconds is None or wall is None:
        return None
    lasted = max(seconds, now - wall)
    return steps / lasted if steps >= 0 and lasted > 0 else None


def _quiet_seconds(heard: str, now: str) -> int:
    """Return the whole seconds since systemd's watchdog heard from a task; 0 if it never did.

    Both are Unix times of the host as text; systemd writes `heard` with "@" before it.
    """
    then, clock_of_host = count_in(heard.lstrip("@")), count_in(now)
    return max(clock_of_host - then, 0) if then and clock_of_host else 0


def unit_states(tasks: Sequence[Mapping[str, Any]], answer: str) -> dict[str, UnitState]:
    """Return {task: its state} from the output of the host's command (`unit_commands`).

    `tasks` are those of the host, in the order of the run. Raises ValueError if systemd printed nothing about
    a task.
    """
    shown, *ends = answer.split(SEPARATOR, 3 * len(tasks))
    parts = zip(*(chain(ends[len(tasks) * part :], repeat("")) for part in range(3)), strict=False)
    blocks = parse_show(shown)
    units = {values.get("Id"): values for values in blocks}
    now = next((values[_NOW] for values in blocks if _NOW in values), "")
    files = {line.strip().rpartition("/")[2] for line in shown.splitlines()}
    states = {}
    for task, (log, noted, step) in zip(tasks, parts, strict=False):
        values = units.get(unit_name(task["job"], task["index"]), {})
        if "ActiveState" not in values:
            raise ValueError(f"systemctl printed nothing about {task['name']}")
        failed, lines = values["ActiveState"] == FAILED, log.splitlines()
        restarting = values.get("SubState") == "auto-restart"
        runs = is_alive(values) and not (failed or restarting)
        quiet = _quiet_seconds(values.get("WatchdogTimestamp", ""), now) if runs else 0
        name, result = task["name"], values.get("Result", "")
        why = why_ended(name, result, lines) if failed else program_failure(name, lines)
        states[name] = UnitState(
            alive=is_alive(values),
            trouble=FAILED if failed else RESTARTING if restarting else HUNG if quiet >= HUNG_SECONDS else "",
            exit_code=STOPPED if f"{name}.json" in files else count_in(values.get("ExecMainStatus")),
            restarts=count_in(values.get("NRestarts")) or 0,
            why=in_a_line(why, _MOST_OF_A_REASON),
            rebooted=boot_file(Path(), task["job"], task["index"]).name in files,
            saves=tuple(noted_places(noted)),
            rate=_rate(step) if runs else None,
            quiet_seconds=quiet,
            only_serves=runs and values.get("StatusText") == ONLY_SERVES,
        )
    return states
