"""The places of workers in a run: which may be empty, and which workers may leave or join during the run.

TensorFlow fixes the addresses of all tasks at their start, so each place is in the plan from the beginning.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from psfleet.inventory.success_policy import ALL_WORKERS, VARIABLE, needed_workers
from psfleet.run.active_runs import RefusedError
from psfleet.run.settings import can_resize
from trainer.contract.exit_codes import FINISHED
from trainer.contract.task_names import CHIEF
from trainer.host.wording import counted, first_of

_ONLY = (
    "workers leave and join only an asynchronous run of a model without existing servers, whose workers have "
    "no parts of their own"
)

# A task of a run (`tasks_of_run`), and {host: its answer to `trainer_tasks`}.
Task = Mapping[str, Any]
Answers = Mapping[str, Mapping[str, Any]]


def is_elastic(settings: Mapping[str, Any]) -> bool:
    """Return whether workers may leave and join a run with these settings (`saved_settings`).

    True for an asynchronous run of a model without existing servers, whose workers have no parts of their
    own.
    """
    training = settings["cluster"]
    shared = training.get("replication") == "async" and not training.get("existing_servers")
    return can_resize(settings) and shared


def may_be_away(task: Task) -> bool:
    """Return whether an elastic run can go on without this task: True for workers other than worker 0."""
    return bool(task["job"] == "worker" and task["name"] != CHIEF)


def leaving_workers(
    run_id: str,
    tasks: Sequence[Task],
    settings: Mapping[str, Any],
    leave: Collection[str],
    hosts: Answers,
) -> list[dict[str, Any]]:
    """Return the workers of a run on the hosts `leave`, if the run can go on without them.

    `hosts` is {host that answered: its answer}; a worker on any other host counts as not alive. Raises
    RefusedError, which says what to type instead, if no task is on the hosts `leave`, if the run cannot go on
    without one of the tasks there, or if too few workers that are alive would be left for
    `training_run_success`.
    """
    whole = f"To stop the whole run: ansible-playbook stop.yml -e run_id={run_id}"
    leaving = [dict(task) for task in tasks if task["host"] in leave]
    if not leaving:
        raise RefusedError(f"no task of run {run_id} is on {', '.join(leave)}; nothing was stopped")
    if not is_elastic(settings):
        raise RefusedError(f"{_ONLY}; nothing was stopped. {whole}")
    if indispensable := [f"{task['name']} on {task['host']}" for task in leaving if not may_be_away(task)]:
        without = f"run {run_id} cannot go on without {', '.join(indispensable)}; nothing was stopped"
        raise RefusedError(f"{without}. Limit stop.yml to hosts with other workers only. {whole}")
    workers = [task for task in tasks if task["job"] == "worker"]
    remaining = [task for task in workers if task["host"] not in leave and _is_alive(run_id, task, hosts)]
    needed = needed_workers(settings.get("success", ALL_WORKERS), len(workers))
    if len(remaining) < needed or CHIEF not in {task["name"] for task in remaining}:
        silent = {task["host"]: None for task in workers if task["host"] not in {*hosts, *leave}}
        unknown = f" ({first_of([*silent])} gave no answer)" if silent else ""
        asks = f"{VARIABLE} is {settings.get('success', ALL_WORKERS)}, so {needed} of {len(workers)} workers"
        raise RefusedError(
            f"{asks} must finish, the chief among them, and {counted(len(remaining), 'worker')} would be left"
            f"{unknown}; nothing was stopped. {whole}. It resumes with fewer needed workers by "
            f"ansible-playbook train.yml -e run_id={run_id} -e {VARIABLE}={max(len(remaining), 1)}"
        )
    return leaving


def dispensable_tasks(
    run_id: str, tasks: Sequence[Task], settings: Mapping[str, Any], hosts: Answers, others: Answers
) -> list[str]:
    """Return the names of the tasks on hosts that are not in `hosts`, if the run can end well without them.

    `hosts` has the answers of the hosts that take part, `others` the answers of further hosts. Return [] if
    the run needs one of the tasks, if one is alive on a host in `others` (a task that is alive takes part),
    or if all hosts are in `hosts`.
    """
    out = [task for task in tasks if task["host"] not in hosts]
    workers = [task for task in tasks if task["job"] == "worker"]
    needed = needed_workers(settings.get("success", ALL_WORKERS), len(workers))
    may_go_on = is_elastic(settings) and all(map(may_be_away, out)) and len(workers) - len(out) >= needed
    takes_part = any(_is_alive(run_id, task, others) for task in out)
    return [str(task["name"]) for task in out] if may_go_on and not takes_part else []


def absent_workers(run_id: str, tasks: Sequence[Task], hosts: Answers) -> list[Task]:
    """Return the workers that neither run nor have finished, though their run is going on; [] for none.

    The workers are in the order of `tasks`. The chief is not among them, nor are workers on hosts without an
    answer.
    """
    return [
        task
        for task in tasks
        if may_be_away(task)
        and task["host"] in hosts
        and not _is_alive(run_id, task, hosts)
        and not _has_finished(run_id, task, hosts)
    ]


def _is_alive(run_id: str, task: Task, hosts: Answers) -> bool:
    entry = _entry_of(run_id, task, hosts)
    return bool(entry.get("alive"))


def _has_finished(run_id: str, task: Task, hosts: Answers) -> bool:
    entry = _entry_of(run_id, task, hosts)
    return bool(entry) and not entry["failed"] and entry["exit_code"] == FINISHED


def _entry_of(run_id: str, task: Task, hosts: Answers) -> Mapping[str, Any]:
    """Return the entry of a task in its host's answer.

    Return {} if the host did not answer, or if the task's newest run there is not `run_id`.
    """
    every = hosts.get(task["host"], {}).get("tasks", ())
    return next((each for each in every if each["name"] == task["name"] and each["run_id"] == run_id), {})
