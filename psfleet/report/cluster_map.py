"""Computes the map of the cluster: hosts with their tasks.

If there are many hosts, hosts that are alike share a box.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from psfleet.evidence.answer import counted, size
from psfleet.evidence.endings import HOST
from psfleet.evidence.lost_workers import NOT_THERE, was_there
from psfleet.evidence.recorded_run import Run
from psfleet.evidence.task_records import TaskRecords
from psfleet.report.number_format import name_range, shorten
from trainer.contract.task_names import EVALUATOR
from trainer.host.wording import grouped

# Up to this many hosts have a box of their own.
MOST_HOSTS = 24
MOST_BOXES = 60


@dataclass(frozen=True)
class TaskBox:
    """A task on the map.

    `kind` is "good", "bad" or "open" (unknown, or not over), and `state` describes the task in words.
    `traffic` says what the task exchanged, "" if nobody counted it. `port` is "" for a task that has none in
    the plan.
    """

    name: str
    job: str
    port: str
    gpus: tuple[int, ...]
    kind: str
    state: str
    traffic: str = ""


@dataclass(frozen=True)
class HostBox:
    """A host on the map, or several hosts that are alike.

    `hosts` are the names of all hosts in the box. If there are several, `name` and `address` are texts such
    as "host1 … host9 (9)", and so are the names of the tasks.
    """

    name: str
    address: str
    tasks: tuple[TaskBox, ...]
    hosts: tuple[str, ...]


def host_boxes(run: Run) -> tuple[HostBox, ...]:
    """Return a box for each host of the plan, in the plan's order; () without a plan.

    With more than MOST_HOSTS (24) hosts, hosts whose tasks are alike share a box; after MOST_BOXES (60)
    boxes, one box without tasks has all other hosts. Planned tasks that take no part in the run are shown,
    too.
    """
    if run.plan is None:
        return ()
    placed = {task.name: (str(task.port), task.gpus) for task in run.plan.tasks}
    addresses = {task.host: task.address for task in run.plan.tasks}
    of_host: dict[str, list[TaskBox]] = {host: [] for host in addresses}
    for task in (*run.expected, *run.lost):
        own = of_host.setdefault(task.host, [])
        ending = run.endings.get(task.name)
        exchanged = ending.exchanged if ending else None
        traffic = f"received {size(exchanged[0])}, sent {size(exchanged[1])}" if exchanged else ""
        where = placed.get(task.name, ("", ()))
        own.append(TaskBox(task.name, task.job, *where, *box_state(run, task.name), traffic))
        if task.name == run.chief.name and run.evaluator.records:
            # The evaluator ran on the chief's host after the run.
            kind, state = _by_records(run.evaluator)
            own.append(TaskBox(run.evaluator.name, EVALUATOR, "", (), kind, f"after the run: {state}"))
    expected = {task.name for task in (*run.expected, *run.lost)}
    for planned in run.plan.tasks:
        if planned.name not in expected:
            idle = TaskBox(planned.name, planned.job, *placed[planned.name], "open", "not in this run")
            of_host[planned.host].append(idle)
    hosts = []
    for host, tasks in of_host.items():
        name = shorten(host, 60)
        hosts.append(HostBox(name, shorten(addresses.get(host, ""), 60), tuple(tasks), (name,)))
    return tuple(hosts if len(hosts) <= MOST_HOSTS else _alike(hosts))


def box_state(run: Run, name: str) -> tuple[str, str]:
    """Return (`kind`, `state`) of a task's box, as TaskBox describes them, by its records and its ending.

    A failure in the records or by systemd makes it "bad". `state` says how the task ended, and how often it
    restarted.
    """
    ending, records = run.endings.get(name), run.task(name)
    kind, words = _by_records(records)
    if ending is None and run.is_lost(name) and not records.ending:
        is_lost = was_there(run, name)
        kind, words = ("bad", "lost with its host") if is_lost else ("open", NOT_THERE)
    if ending is not None and kind != "bad":
        if ending.ended_by == HOST:
            kind, words = "bad", "lost: its host went down"
        elif ending.failed:
            kind, words = "bad", f"failed, exit code {ending.exit_code}"
        elif ending.alive:
            kind, words = "open", "still running"
        elif kind != "good":
            kind, words = "good", "ended by itself" if ending.by_itself else "ended by train.yml"
    restarts = max(ending.restarts if ending else 0, records.restarts)
    return kind, words + (f", started again {counted(restarts, 'time')}" if restarts else "")


def _by_records(records: TaskRecords) -> tuple[str, str]:
    if records.ending is None:
        return "open", "its end is unknown" if records.records else "left no records"
    if records.ending.event == "failed":
        return "bad", shorten(f"failed: {records.ending.text('class')}", 60)
    return "good", shorten(records.ending.text("reason"), 60)


def _alike(hosts: Sequence[HostBox]) -> list[HostBox]:
    groups = grouped(
        (tuple((task.job, task.port, task.gpus, task.kind, task.state) for task in host.tasks), host)
        for host in hosts
    )
    merged = [group[0] if len(group) == 1 else _one_box(group) for group in groups.values()]
    if len(merged) <= MOST_BOXES:
        return merged
    rest = [host for box in merged[MOST_BOXES:] for host in box.hosts]
    return [*merged[:MOST_BOXES], HostBox(f"{len(rest)} hosts more", "", (), tuple(rest))]


def _one_box(group: Sequence[HostBox]) -> HostBox:
    tasks = tuple(
        replace(task, name=name_range([host.tasks[place].name for host in group]), traffic="")
        for place, task in enumerate(group[0].tasks)
    )
    names = [host.name for host in group]
    return HostBox(
        name_range(names), name_range([host.address for host in group], most=2), tasks, tuple(names)
    )
