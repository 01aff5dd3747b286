"""How the tasks of a cluster are, for people: what each host said of its tasks, by task.

Pure: `Status.of` takes the plan and the hosts' answers, `trainer.status_table` makes lines of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from trainer.exit_codes import FAILURE_CLASSES, STOPPED
from trainer.progress import Progress, last_line_of, printable
from trainer.progress_notes import names

# How a line is to look: of what goes well, what is on its way, what is wrong, and what nobody can tell.
Kind = Literal["good", "waiting", "bad", "unknown", "plain"]

JOBS = ("ps", "chief", "worker", "server")
# A worker that takes steps records them every 30 s at least.
STEP_OVERDUE_SECONDS = 90
REASON_CHARACTERS = 500
HOSTS_SHOWN = 10

_STATES: Mapping[str, tuple[str, Kind]] = {
    "active": ("running", "good"),
    "reloading": ("running", "good"),
    "activating": ("starting", "waiting"),
    "deactivating": ("stopping", "waiting"),
}


@dataclass(frozen=True)
class Row:
    """A task. A figure that is not known is None; `message` is why it does not run, or its last words.

    `since_seconds`: how long it has been in this state. `memory_bytes` and `cpu_seconds` are the unit's.
    """

    task: str
    host: str
    state: str
    kind: Kind
    message: str = ""
    since_seconds: float | None = None
    restarts: int | None = None
    global_step: int | None = None
    loss: float | None = None
    steps_per_second: float | None = None
    unit: str = ""
    pid: int = 0
    memory_bytes: int | None = None
    cpu_seconds: float | None = None
    log: str = ""


@dataclass(frozen=True)
class Status:
    """The rows in the order of jobs and indices, the run in words, and what is to be said of hosts.

    `answered`: whether at least one host did.
    """

    rows: tuple[Row, ...]
    run: str
    notes: tuple[str, ...] = ()
    answered: bool = True
    summary: str = field(default="")

    @classmethod
    def of(cls, plan: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]) -> Status:
        """Put together what the hosts answered.

        `plan` is today's (`plan.json` in docs/architecture.md). `answers` maps each host that was asked to
        `problem` ("" where it answered), `deployed` and `tasks` (as the module trainer_tasks describes them).
        """
        found = {
            (str(host), str(task["name"])): task
            for host in answers
            for task in answers[host].get("tasks", ())
        }
        runs = _runs(found)
        planned = {(str(task["host"]), f"{task['job']}{task['index']}"): task for task in plan["tasks"]}
        rows = [
            _planned_row(host, name, answers[host], found.get((host, name)), runs)
            for host, name in planned
            if host in answers
        ]
        rows += [
            _row(host, task, runs)
            for (host, name), task in found.items()
            if (host, name) not in planned and (task["alive"] or task["run_id"] in runs)
        ]
        left_out = sorted({str(task["host"]) for task in plan["tasks"]} - set(answers))
        return cls(
            rows=tuple(sorted(rows, key=_order)),
            run="\n".join(_run(run_id, found, left_out) for run_id in runs) or _no_run(answers),
            notes=tuple(_notes(plan, answers, left_out)),
            answered=any(_has_answered(answer) for answer in answers.values()),
            summary=_summary(rows),
        )


def _runs(found: Mapping[tuple[str, str], Mapping[str, Any]]) -> list[str]:
    """Return the runs that go on; where none does, the last one: that of the lead, or of most tasks."""
    alive = sorted({str(task["run_id"]) for task in found.values() if task["alive"] and task["run_id"]})
    if alive:
        return alive
    by_name = {name: str(task["run_id"]) for (_, name), task in found.items() if task["run_id"]}
    if not by_name:
        return []
    leads = Counter(run_id for name, run_id in by_name.items() if name in {"chief0", "worker0"})
    return [max(leads or Counter(by_name.values()), key=lambda run_id: list(by_name.values()).count(run_id))]


def _has_answered(answer: Mapping[str, Any]) -> bool:
    return bool(answer) and not answer.get("problem")


def _planned_row(
    host: str,
    name: str,
    answer: Mapping[str, Any],
    task: Mapping[str, Any] | None,
    runs: Sequence[str],
) -> Row:
    if not _has_answered(answer):
        return Row(name, host, "unreachable", "unknown", _words(answer.get("problem") or "gave no answer"))
    if not answer["deployed"]:
        return Row(name, host, "not deployed", "unknown")
    if task is None:
        return Row(name, host, "unknown", "unknown", "its host said nothing of it")
    return _row(host, task, runs)


def _row(host: str, task: Mapping[str, Any], runs: Sequence[str]) -> Row:
    state, kind = _state(task)
    known = {
        "since_seconds": task["since_seconds"],
        "restarts": task["restarts"],
        "unit": f"psfleet-{task['job']}@{task['index']}.service",
        "pid": task["pid"],
        "memory_bytes": task["memory_bytes"],
        "cpu_seconds": task["cpu_seconds"],
        "log": printable(str(task["log"])) if task["run_id"] else "",
    }
    if runs and task["run_id"] not in runs:
        last = f"; its last was {printable(str(task['run_id']))}" if task["run_id"] else ""
        return Row(str(task["name"]), host, state, kind, f"not in this run{last}", **known)
    step = task["last_step"]
    return Row(
        str(task["name"]),
        host,
        state,
        kind,
        _message(task, state),
        global_step=None if step.get("global_step") is None else int(step["global_step"]),
        loss=step.get("loss"),
        # What it was when it still took steps is no rate of now.
        steps_per_second=step.get("steps_per_second") if _takes_steps(task) else None,
        **known,
    )


def _state(task: Mapping[str, Any]) -> tuple[str, Kind]:
    active, _, below = str(task["state"]).partition(" ")
    if below == "(auto-restart)":
        return "restarting", "bad"
    if task["failed"]:
        return "failed", "bad"
    if active in _STATES:
        return _STATES[active]
    if task["alive"]:  # its start waits for another unit's
        return "starting", "waiting"
    if not task["run_id"]:
        return "no run yet", "plain"
    stopped = task["exit_code"] == STOPPED or task["finished"] == "stopped"
    return ("stopped" if stopped else "ended"), "plain"


def _takes_steps(task: Mapping[str, Any]) -> bool:
    age = task["last_step_age_seconds"]
    return bool(task["alive"] and age is not None and age <= STEP_OVERDUE_SECONDS)


def _message(task: Mapping[str, Any], state: str) -> str:
    last = _words(last_line_of(str(task["log_end"])))
    if state == "failed":
        return _why(task)
    if state == "restarting":
        return f"after {_ended_by(task)}: {last}" if last else f"after {_ended_by(task)}"
    age = task["last_step_age_seconds"]
    if state == "running" and age is not None and not _takes_steps(task):
        return f"no step for {duration(age)}; {last}"
    return last


def _why(task: Mapping[str, Any]) -> str:
    """Say how a task failed: by its exit code or what systemd says of it, and its own reason."""
    how, reason = _ended_by(task), _words(str(task["reason"]))
    if not task["exit_code"] and reason.startswith("its unit is "):
        return f"{reason}; deploy.yml writes it"
    return how if not reason or reason == task["result"] else f"{how}: {reason}"


def _ended_by(task: Mapping[str, Any]) -> str:
    code, result = int(task["exit_code"]), str(task["result"])
    if result in {"signal", "core-dump"}:
        return f"signal {code}"
    if result not in {"exit-code", "success"}:
        return printable(result)
    failure = FAILURE_CLASSES.get(code, "")
    # The reason that a task recorded begins with the class.
    named = f" ({failure})" if failure and not str(task["reason"]).startswith(f"{failure}:") else ""
    return f"exit code {code}{named}"


def _run(run_id: str, found: Mapping[tuple[str, str], Mapping[str, Any]], left_out: Sequence[str]) -> str:
    """Say how a run stands, by the word of the task that leads it."""
    leads = [
        (name, host, task)
        for (host, name), task in sorted(found.items(), key=lambda entry: entry[0][1])
        if name in {"chief0", "worker0"} and task["run_id"] == run_id
    ]
    run = f"Run {printable(run_id)}"
    if not leads:
        return f"{run}: {'--limit leaves out' if left_out else 'nobody answered for'} the task that leads it"
    name, host, task = leads[0]
    progress = Progress.from_mapping(task["progress"]) if task["progress"] else Progress("")
    parts = [progress.phase or "it has not told how far it is"]
    if task["progress"] and not task["alive"] and not progress.over:
        parts[0] += f" until {name} {_state(task)[0]}"
    if progress.last_step:
        share = min(progress.global_step / progress.last_step, 1.0)
        parts.append(f"step {progress.global_step} of {progress.last_step} ({share:.0%})")
    elif progress.global_step:
        parts.append(f"step {progress.global_step}")
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    parts.append(f"led by {name} on {host}")
    if progress.missing:
        parts.append(f"waiting for {names(progress.missing)}")
    if progress.reason and progress.phase != "finished":
        parts.append(progress.reason)
    return _words(f"{run}: {', '.join(parts)}")


def _no_run(answers: Mapping[str, Mapping[str, Any]]) -> str:
    if any(_has_answered(answer) and answer["deployed"] for answer in answers.values()):
        return "No run yet: `ansible-playbook train.yml` starts one."
    return ""


def _notes(
    plan: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]], left_out: Sequence[str]
) -> Iterable[str]:
    silent = [host for host, answer in answers.items() if not _has_answered(answer)]
    for host in silent[:HOSTS_SHOWN]:
        yield f"{host} gave no answer: {_words(answers[host].get('problem') or 'lost on the way')}"
    if len(silent) > HOSTS_SHOWN:
        yield f"Nor did {_names(silent[HOSTS_SHOWN:])}."
    answered = {host: answer["deployed"] for host, answer in answers.items() if _has_answered(answer)}
    bare = [host for host, deployed in answered.items() if not deployed]
    if bare:
        yield f"Not deployed: {_names(bare)}. `ansible-playbook deploy.yml` makes them ready."
    other = [host for host, deployed in answered.items() if deployed and deployed.get("hash") != plan["hash"]]
    if other:
        yield f"The plan deployed on {_names(other)} is not today's inventory: run deploy.yml between runs."
    if left_out:
        yield f"Left out by --limit: {_names(left_out)}."


def _names(hosts: Sequence[str]) -> str:
    more = f" and {len(hosts) - HOSTS_SHOWN} more" if len(hosts) > HOSTS_SHOWN else ""
    return ", ".join(hosts[:HOSTS_SHOWN]) + more


def _summary(rows: Sequence[Row]) -> str:
    states = Counter(row.state for row in rows)
    hosts = len({row.host for row in rows})
    counted = ", ".join(f"{count} {state}" for state, count in states.most_common())
    tasks = f"{len(rows)} task{'s' if len(rows) != 1 else ''}"
    return f"{tasks} on {hosts} host{'s' if hosts != 1 else ''}: {counted or 'none'}"


def _order(row: Row) -> tuple[int, int, str]:
    job = row.task.rstrip("0123456789")
    return (JOBS.index(job) if job in JOBS else len(JOBS), int(row.task[len(job) :] or 0), row.host)


def _words(text: object) -> str:
    """Return a host's words in one line, bounded, without what steers a terminal."""
    words = " ".join(printable(str(text)).split())
    return words if len(words) <= REASON_CHARACTERS else f"{words[: REASON_CHARACTERS - 3]}..."


def duration(seconds: float) -> str:
    """Return how long something has been, as in 45s, 12m, 3h05m, 2d04h."""
    whole = max(int(seconds), 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days}d{hours % 24:02}h"
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    return f"{minutes}m" if minutes else f"{whole}s"
