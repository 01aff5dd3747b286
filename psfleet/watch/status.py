"""Combines the hosts' answers about their tasks into the status of the cluster.

Pure functions: `ClusterStatus.of` takes the plan and the answers, `psfleet.watch.status_table` shows the
result.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psfleet.watch.hints import MEND_CONNECTION, remedies
from psfleet.watch.screen_text import duration, in_a_line
from psfleet.watch.unit_states import HUNG, HUNG_SECONDS
from trainer.contract.exit_codes import FAILURE_CLASSES, STOPPED
from trainer.contract.progress import Progress, last_line_of, printable
from trainer.contract.task_names import LEADS, split_name
from trainer.host.task_units import RUN_JOBS, unit_name
from trainer.host.wording import counted, first_of, grouped

# A worker that takes steps records them at least every 30 s.
STEP_OVERDUE_SECONDS = 90
HOSTS_SHOWN = 10
NO_ANSWER = f"no host answered: {MEND_CONNECTION}"
NO_RUN = "No run yet: `ansible-playbook train.yml` starts one."

# {systemd's state: (the word for it, its style)}; see `STYLES` in psfleet/watch/console.py.
_STATES: Mapping[str, tuple[str, str]] = {
    "active": ("running", "good"),
    "reloading": ("running", "good"),
    "activating": ("starting", "waiting"),
    "deactivating": ("stopping", "waiting"),
}


@dataclass(frozen=True)
class TaskRow:
    """A task, as status.yml shows it.

    `state` is a word such as "running", `style` its style in `STYLES` (psfleet/watch/console.py). `message`
    says why the task does not run, or is its last output. `figures` are the known figures of the module
    trainer_tasks. Those of the task's last step are included only if the step belongs to the displayed run.
    """

    task: str
    host: str
    state: str
    style: str
    message: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterStatus:
    """What status.yml shows: the rows by job and index, the runs in words, and notes about hosts.

    `run` has a line for each run, "" if nothing is known. `failure` is the message if no host answered, else
    "". `summary` counts the tasks in each state.
    """

    rows: tuple[TaskRow, ...]
    run: str
    notes: tuple[str, ...]
    failure: str
    summary: str

    @classmethod
    def of(
        cls,
        plan: Mapping[str, Any],
        answers: Mapping[str, Mapping[str, Any]],
        uncollected: Mapping[str, Sequence[str]] | None = None,
        table_bytes: Mapping[str, Mapping[str, int]] | None = None,
    ) -> "ClusterStatus":
        """Return the status from the hosts' answers.

        - `plan` is the plan of today's inventory (`plan.json` in docs/contracts.md).
        - `answers` is {queried host: answer}, with `problem` ("" if it answered), `deployed`, and `tasks` as
          the module trainer_tasks describes them.
        - `uncollected` is {run that is not collected yet: its hosts that the plan lacks}.
        - `table_bytes` is {run: {task: bytes of tables that it holds}}; the run "" is the next run.

        A task that is not in the plan has a row, too, if it is alive or belongs to a displayed run.
        """
        tasks_found = {
            (str(host), str(task["name"])): {
                **task,
                "held_bytes": (table_bytes or {}).get(task["run_id"], {}).get(task["name"]),
            }
            for host in answers
            for task in answers[host].get("tasks", ())
        }
        runs = _runs(tasks_found)
        planned = {(str(task["host"]), f"{task['job']}{task['index']}"): task for task in plan["tasks"]}
        rows = [
            _planned_row(host, name, answers[host], tasks_found.get((host, name)), runs)
            for host, name in planned
            if host in answers
        ]
        rows += [
            _row(host, task, runs)
            for (host, name), task in tasks_found.items()
            if (host, name) not in planned and (task["alive"] or task["run_id"] in runs)
        ]
        deployed = any(has_answered(answer) and answer["deployed"] for answer in answers.values())
        left_out = sorted({str(task["host"]) for task in plan["tasks"]} - set(answers))
        unheard = [*left_out, *(host for host, answer in answers.items() if not has_answered(answer))]
        return cls(
            rows=tuple(sorted(rows, key=_order)),
            run="\n".join(_run(run_id, tasks_found, left_out) for run_id in runs)
            or (NO_RUN if deployed else ""),
            notes=(
                *_notes(plan, answers, left_out),
                *_refused(tasks_found),
                *_uncollected(uncollected or {}, tasks_found, unheard),
            ),
            failure="" if any(map(has_answered, answers.values())) else NO_ANSWER,
            summary=_summary(rows),
        )


def _runs(found: Mapping[tuple[str, str], Mapping[str, Any]]) -> list[str]:
    """Return the ids of the runs that are going on, sorted; if none is, only the id of the last run.

    The last run is the one that the lead took part in, else the one of most tasks. Return [] if no task names
    a run. `found` is {(host, task): its entry}.
    """
    alive = sorted({str(task["run_id"]) for task in found.values() if task["alive"] and task["run_id"]})
    if alive:
        return alive
    by_name = {name: str(task["run_id"]) for (_, name), task in found.items() if task["run_id"]}
    tasks_in = Counter(by_name.values())
    of_leads = [run_id for name, run_id in by_name.items() if name in LEADS]
    return [max(of_leads or tasks_in, key=tasks_in.__getitem__)] if tasks_in else []


def has_answered(answer: Mapping[str, Any]) -> bool:
    """Return whether `answer` is a host's answer: it is not empty, and has no `problem`."""
    return bool(answer) and not answer.get("problem")


def _planned_row(
    host: str,
    name: str,
    answer: Mapping[str, Any],
    task: Mapping[str, Any] | None,
    runs: Sequence[str],
) -> TaskRow:
    if not has_answered(answer):
        problem = in_a_line(answer.get("problem") or "gave no answer")
        return TaskRow(name, host, "unreachable", "warning", problem)
    if not answer["deployed"]:
        return TaskRow(name, host, "not deployed", "warning")
    if task is None:
        return TaskRow(name, host, "unknown", "warning", "its host did not report it")
    return _row(host, task, runs)


def _row(host: str, task: Mapping[str, Any], runs: Sequence[str]) -> TaskRow:
    state, style = _state(task)
    figures = dict(task) | {"unit": unit_name(task["job"], task["index"])}
    if runs and task["run_id"] not in runs:
        message = "not in this run"
        message += f"; its last was {printable(str(task['run_id']))}" if task["run_id"] else ""
    else:
        message = _message(task, state)
        figures |= task["last_step"]
    figures["log"] = in_a_line(task["log"]) if task["run_id"] else None
    if not _takes_steps(task):
        # The rate of the time when it still took steps is no present rate.
        figures["steps_per_second"] = None
    return TaskRow(str(task["name"]), host, state, style, message, figures)


def _state(task: Mapping[str, Any]) -> tuple[str, str]:
    active, _, below = str(task["state"]).partition(" ")
    if below == "(auto-restart)":
        return "restarting", "bad"
    if task["failed"]:
        return "failed", "bad"
    if active == "active" and _hangs(task):
        return HUNG, "bad"
    if active in _STATES or task["alive"]:
        return _STATES.get(active, _STATES["activating"])  # its start may wait for another unit's
    if not task["run_id"]:
        return "no run yet", "plain"
    stopped = task["exit_code"] == STOPPED or task["finished"] == "stopped"
    return ("stopped" if stopped else "ended"), "plain"


def _hangs(task: Mapping[str, Any]) -> bool:
    age = task["sign_of_life_age_seconds"]
    return bool(task["alive"] and age is not None and age >= HUNG_SECONDS)


def _takes_steps(task: Mapping[str, Any]) -> bool:
    age = task["last_step_age_seconds"]
    return bool(task["alive"] and age is not None and age <= STEP_OVERDUE_SECONDS and not _hangs(task))


def _message(task: Mapping[str, Any], state: str) -> str:
    last = in_a_line(last_line_of(str(task["log_end"])))
    if state == "failed":
        return _why(task)
    if state == "restarting":
        return f"after {_ended_by(task)}: {last}" if last else f"after {_ended_by(task)}"
    if state == HUNG:
        return f"no sign of life for {duration(task['sign_of_life_age_seconds'])}; {last}"
    age = task["last_step_age_seconds"]
    if state == "running" and age is not None and not (_takes_steps(task) or task["finished"]):
        return f"no step for {duration(age)}; {last}"
    return last


def _why(task: Mapping[str, Any]) -> str:
    """Return how a task failed, in words: its exit code or systemd's result, and its recorded reason.

    Example: "exit code 1: ValueError: no such column"
    """
    how, reason = _ended_by(task), in_a_line(str(task["reason"]))
    if not task["exit_code"] and reason.startswith("its unit is "):
        return f"{reason}; deploy.yml writes it"
    return how if not reason or reason == task["result"] else f"{how}: {reason}"


def _ended_by(task: Mapping[str, Any]) -> str:
    code, result = int(task["exit_code"] or 0), str(task["result"])
    if result in {"signal", "core-dump"}:
        return f"signal {code}"
    if result not in {"exit-code", "success"}:
        return printable(result)
    failure = FAILURE_CLASSES.get(code, "")
    # The reason that a task recorded begins with the class.
    named = f" ({failure})" if failure and not str(task["reason"]).startswith(f"{failure}:") else ""
    return f"exit code {code}{named}"


def _run(run_id: str, found: Mapping[tuple[str, str], Mapping[str, Any]], left_out: Sequence[str]) -> str:
    """Return the state of a run in one line of words, as its lead reports it.

    If no answer has the lead, say so; `left_out` are the hosts that --limit leaves out. `found` is {(host,
    task): its entry}.
    """
    leads = [
        (name, host, task)
        for (host, name), task in sorted(found.items(), key=lambda entry: entry[0][1])
        if name in LEADS and task["run_id"] == run_id
    ]
    run = f"Run {printable(run_id)}"
    if not leads:
        return f"{run}: {'--limit leaves out' if left_out else 'no host answered for'} the task that leads it"
    name, host, task = leads[0]
    progress = Progress.from_mapping(task["progress"]) if task["progress"] else Progress("")
    parts = [progress.phase or "it has reported no progress yet"]
    if task["progress"] and not task["alive"] and not progress.is_over:
        parts[0] += f" until {name} {_state(task)[0]}"
    if progress.last_step:
        share = min(progress.global_step / progress.last_step, 1.0)
        parts.append(f"step {progress.global_step} of {progress.last_step} ({share:.0%})")
    elif progress.global_step:
        parts.append(f"step {progress.global_step}")
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    if progress.evaluation:
        parts.append(f"evaluated: {progress.evaluation}")
    parts.append(f"led by {name} on {host}")
    if task["begun"]:
        parts.append(f"begun by {task['begun']}")
    reason = progress.reason if progress.phase != "finished" else ""
    return in_a_line(
        f"{run}: {', '.join(filter(None, (*parts, progress.fault_costs, progress.waiting, reason)))}"
    )


def _notes(
    plan: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]], left_out: Sequence[str]
) -> Iterable[str]:
    yield from silent_hosts(answers)
    answered = {host: answer["deployed"] for host, answer in answers.items() if has_answered(answer)}
    bare = [host for host, deployed in answered.items() if not deployed]
    if bare:
        yield f"Not deployed: {first_of(bare)}. `ansible-playbook deploy.yml` makes them ready."
    other = [host for host, deployed in answered.items() if deployed and deployed.get("hash") != plan["hash"]]
    if other:
        yield f"The plan deployed on {first_of(other)} is not today's inventory: run deploy.yml between runs."
    if left_out:
        yield f"Left out by --limit: {first_of(left_out)}."


def _refused(found: Mapping[tuple[str, str], Mapping[str, Any]]) -> Iterable[str]:
    """Yield one sentence about the connections that fences refused, with each task; nothing if none.

    `found` is {(host, task): its entry}.
    """
    refused = [
        f"{counted(task['refused'], 'connection')} to {name} on {host}"
        for (host, name), task in found.items()
        if task["refused"]
    ]
    if refused:
        yield f"The port fence refused {first_of(refused)}."


def silent_hosts(answers: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """Yield sentences: which hosts did not answer and why, then the remedies; nothing if all answered.

    `answers` is {host: answer}; hosts with the same reason share a sentence.
    """
    silent = grouped(
        (in_a_line(answer.get("problem") or "lost on the way"), host)
        for host, answer in answers.items()
        if not has_answered(answer)
    )
    for problem, hosts in [*silent.items()][:HOSTS_SHOWN]:
        yield f"{first_of(hosts)} gave no answer: {problem}"
    if more := [host for hosts in [*silent.values()][HOSTS_SHOWN:] for host in hosts]:
        yield f"Nor did {first_of(more)}."
    yield from (f"-> {remedy}" for remedy in remedies(silent, otherwise=""))


def _uncollected(
    uncollected: Mapping[str, Sequence[str]],
    found: Mapping[tuple[str, str], Mapping[str, Any]],
    unheard: Sequence[str],
) -> Iterable[str]:
    alive = {task["run_id"] for task in found.values() if task["alive"]}
    for run_id, other_hosts in uncollected.items():
        if other_hosts:
            yield (
                f"Run {run_id} may still be going on: it has tasks on {first_of(other_hosts)}, which are not "
                "in this inventory. Ask with the inventory of that run"
            )
        elif run_id not in alive and unheard:
            yield (
                f"Run {run_id} is not collected, and may still be going on at {first_of(unheard)}: "
                f"ansible-playbook train.yml -e run_id={run_id} waits for its end and collects it"
            )
        elif run_id not in alive:
            yield f"Run {run_id} is over and not collected: ansible-playbook train.yml -e run_id={run_id}"


def _summary(rows: Sequence[TaskRow]) -> str:
    states = Counter(row.state for row in rows)
    hosts = len({row.host for row in rows})
    found = ", ".join(f"{count} {state}" for state, count in states.most_common())
    return f"{counted(len(rows), 'task')} on {counted(hosts, 'host')}: {found or 'none'}"


def _order(row: TaskRow) -> tuple[int, int, str]:
    job, index = split_name(row.task)
    return (RUN_JOBS.index(job) if job in RUN_JOBS else len(RUN_JOBS), index, row.host)
