"""Runs that are going on, as hosts report them: which are in a new run's way, and which stop.yml stops."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from trainer.contract.rules import as_given
from trainer.host.task_traces import RUN_ID
from trainer.host.wording import first_of, grouped

RUN_ID_RULE = (
    "lower case letters, digits, dashes and single dots, at most 63, with a letter or digit first and no dot "
    "last; not current, nor a name that ends in .out"
)

_ROLE_OF_JOB = {"ps": "ps", "server": "server"}


class RefusedError(ValueError):
    """The user's request is refused; `problems` lists every reason, and the message joins them by "; "."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def checked_run_id(run_id: str) -> str:
    """Return `run_id`, unchanged. Raises RefusedError if it breaks RUN_ID_RULE, also for ""."""
    if not RUN_ID.fullmatch(run_id):
        raise RefusedError(f"run_id is {as_given(run_id)}; expected {RUN_ID_RULE}")
    return run_id


def run_to_stop(hosts: Mapping[str, Mapping[str, Any]], requested_id: str = "") -> str:
    """Return the id of the run that stop.yml stops: the only one that is going on; "" if none is.

    `hosts` is {host: its answer to the module `trainer_tasks`}. `requested_id` is the run that the user
    named, or "". Raises RefusedError if it breaks RUN_ID_RULE, if only another run is going on, if several
    runs are (also with a `requested_id`), or if a host reports an invalid name.
    """
    if requested_id:
        checked_run_id(requested_id)
    tasks = tasks_on(hosts)
    run_ids = sorted({str(task["run_id"]) for task in tasks if task["alive"]})
    if invalid := [_invalid_run_id(run_id) for run_id in run_ids if not RUN_ID.fullmatch(run_id)]:
        raise RefusedError(*invalid)
    if len(run_ids) > 1:
        named = (f"{run_id}{begun_by(tasks, run_id)}" for run_id in run_ids)
        raise RefusedError(f"several runs are going on: {'; '.join(named)}. Stop their units on the hosts")
    if requested_id and run_ids and requested_id != run_ids[0]:
        raise RefusedError(
            f"run_id is {requested_id}, but the run that is going on is {run_ids[0]}"
            f"{begun_by(tasks, run_ids[0])}; nothing was stopped. "
            f"To stop that one: ansible-playbook stop.yml -e run_id={run_ids[0]}"
        )
    return run_ids[0] if run_ids else ""


def tasks_to_stop(
    run_id: str, tasks: Sequence[Mapping[str, Any]], hosts: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the tasks that stop.yml stops: the tasks of the run, then others that hosts still run for it.

    `tasks` are the run's as far as the controller knows (`tasks_of_run`); `hosts` is {host: its answer}. A
    host may run others, of an earlier inventory; these have the field `stray`, which is True, because what
    they leave does not belong to the run. The run's own tasks lack that field.
    """
    known = {(task["name"], task["host"]) for task in tasks}
    strays = [
        {name: task[name] for name in ("name", "job", "index")}
        | {"host": host, "role": _ROLE_OF_JOB.get(task["job"], "client"), "stray": True}
        for host, found in hosts.items()
        for task in found["tasks"]
        if task["run_id"] == run_id and task["alive"] and (task["name"], host) not in known
    ]
    return [*(dict(task) for task in tasks), *strays]


def unstopped_message(tasks: Sequence[Mapping[str, Any]], hosts: Collection[str]) -> str:
    """Return a message about the `tasks` whose host is not in `hosts`, the hosts that were reached.

    It names each task (its `name` and `host`) as not reached and perhaps still alive, and says how to stop
    it. Return "" if there are no such tasks.
    """
    names = tasks_elsewhere(tasks, hosts)
    if not names:
        return ""
    return (
        f"Not reached, and perhaps still alive: {names}. Type stop.yml again when they are in the inventory "
        "and can be reached, or on the host: systemctl stop 'psfleet-*@*'"
    )


def tasks_elsewhere(tasks: Sequence[Mapping[str, Any]], hosts: Collection[str]) -> str:
    """Return the tasks whose host is not in `hosts`, in words; "" if there are none.

    Example: "ps0 on node1, worker0 on node2"
    """
    return ", ".join(f"{task['name']} on {task['host']}" for task in tasks if task["host"] not in hosts)


def other_runs(run_id: str, hosts: Mapping[str, Mapping[str, Any]], beside: str = "") -> Iterator[str]:
    """Yield a sentence for each run but `run_id` that is going on, and what the user can do about it.

    `run_id` is the user's own run; with "", every run gets a sentence. `hosts` is {host: its answer}.
    `beside` is one more way out, which the sentence names before stop.yml. A run with an invalid name gets a
    sentence without commands.
    """
    alive = [(task, host) for host, found in hosts.items() for task in found["tasks"] if task["alive"]]
    for other, tasks in grouped(
        (str(task["run_id"]), f"{task['name']} on {host}") for task, host in alive
    ).items():
        if not RUN_ID.fullmatch(other):  # it would be part of a command to copy
            yield f"{_invalid_run_id(other)} ({', '.join(tasks)})"
        elif other != run_id:
            yield (
                f"run {other} is going on ({', '.join(tasks)}){begun_by(tasks_on(hosts), other)}: watch it "
                f"with ansible-playbook train.yml -e run_id={other}, or wait for its end{beside}. Where it "
                f"is yours, or nobody needs it, end it with ansible-playbook stop.yml -e run_id={other}"
            )


def tasks_on(hosts: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the tasks in the answers of all hosts, in one list, host by host."""
    return [task for found in hosts.values() for task in found["tasks"]]


def begun_by(tasks: Iterable[Mapping[str, Any]], run_id: str) -> str:
    """Return who began a run and when, as hosts report it, beginning with ", "; "" if no host reports it.

    Example: ", begun by ana@desk, 2026-01-31 12:00 UTC". If hosts report several people, " or " joins at most
    three.
    """
    people = sorted({str(task["begun"]) for task in tasks if task["run_id"] == run_id} - {""})
    return f", begun by {first_of(people, 3, ' or ')}" if people else ""


def _invalid_run_id(run_id: str) -> str:
    return f"a host names the run {run_id!r}; expected {RUN_ID_RULE}"
