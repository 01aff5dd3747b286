"""Whether a run may start on these hosts, or goes on there already: a pure function of what was found."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from psfleet.run.folder import lead_of
from trainer.host.environment import TENSORFLOW_VERSION

RUN_ID_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
RUN_ID_RULE = "lower case letters, digits and dashes, at most 63, with a letter or digit first"

_ROLE_OF_JOB = {"ps": "ps", "server": "server"}

# What state.json in the run folder says, as train.yml and stop.yml leave it; "" where there is no folder.
FolderState = Literal["", "running", "stopped", "ended"]


@dataclass(frozen=True)
class Folder:
    """What the run's folder on the controller says: its state, and the hash of the plan that it began on."""

    state: FolderState = ""
    plan_hash: str = ""


@dataclass(frozen=True)
class Decision:
    """`start` begins a run or lets it go on, `attach` watches one that is going on.

    `collect` is for one that has ended while nobody watched.
    """

    action: Literal["start", "attach", "collect", "refuse"]
    problems: tuple[str, ...] = ()


def decide(
    run_id: str,
    plan: Mapping[str, Any],
    tasks: Sequence[Mapping[str, Any]],
    hosts: Mapping[str, Mapping[str, Any]],
    folder: Folder,
) -> Decision:
    """Decide what train.yml does.

    `plan` is today's plan (`/etc/psfleet/plan.json` in docs/contracts.md), `tasks` are those of the run
    (`tasks_of_run`); `hosts` maps each host that was asked to what the module `trainer_tasks` found there:
    `deployed` (a plan or {}), `tensorflow` (the version installed there, or ""), `lacks_cuda` (whether it was
    built without) and `tasks`.
    """
    if not RUN_ID_PATTERN.fullmatch(run_id):
        return Decision("refuse", (f"run_id is {run_id!r}; expected {RUN_ID_RULE}",))
    taking_part = {task["host"] for task in tasks}
    of_run = {host: found for host, found in hosts.items() if host in taking_part}
    leading = _leading(tasks, hosts)
    of_lead = leading.get("run_id") == run_id
    attaches = of_lead and bool(leading["alive"])
    collects = of_lead and folder.state == "running" and leading["phase"] in {"finished", "failed"}
    problems = [*_left_out(tasks, hosts), *_undeployed(plan, of_run), *_other_runs(run_id, hosts)]
    if not (attaches or collects):  # what runs, or ran, did so with the versions that it was started with
        problems += [*_versions(of_run), *_without_cuda(plan, of_run)]
    if folder.state == "ended":
        problems.append(
            f"run_id {run_id} exists and has ended; choose another, or look at it with "
            f"ansible-playbook verify.yml -e run_id={run_id}"
        )
    elif folder.state and folder.plan_hash != plan["hash"]:
        problems.append(
            f"run {run_id} began on plan {folder.plan_hash}, today's inventory is plan {plan['hash']}; a run "
            "stays where its checkpoint is: put the inventory back, or begin a new run"
        )
    if problems:
        return Decision("refuse", tuple(problems))
    if attaches:
        return Decision("attach")
    # Others may be alive: a program's ps, and workers that serve, wait for train.yml to end them.
    return Decision("collect" if collects else "start")


def going_on(hosts: Mapping[str, Mapping[str, Any]], asked: str = "") -> Decision | str:
    """Return the run that stop.yml ends, "" where none is going on, or why it cannot be said.

    `asked` is the run that the user named; "" for whichever it is. Another one is refused.
    """
    tasks = [task for found in hosts.values() for task in found["tasks"]]
    run_ids = sorted({str(task["run_id"]) for task in tasks if task["alive"]})
    spoiled = [run_id for run_id in run_ids if not RUN_ID_PATTERN.fullmatch(run_id)]
    if spoiled:
        return Decision(
            "refuse", tuple(f"a host names the run {name!r}; expected {RUN_ID_RULE}" for name in spoiled)
        )
    if len(run_ids) > 1:
        names = ", ".join(run_ids)
        return Decision("refuse", (f"several runs are going on: {names}; stop their units on the hosts",))
    if asked and run_ids and asked != run_ids[0]:
        return Decision(
            "refuse",
            (
                f"run_id is {asked}, but the run that is going on is {run_ids[0]}; nothing was stopped. To "
                f"stop that one: ansible-playbook stop.yml -e run_id={run_ids[0]}",
            ),
        )
    return run_ids[0] if run_ids else ""


def stopped_tasks(
    run_id: str, tasks: Sequence[Mapping[str, Any]], hosts: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the tasks that stop.yml ends: those of the run, and what else the hosts have of it.

    `tasks` are those of the run as far as the controller knows (`tasks_of_run`); a host may have others,
    of an inventory of the past. Such a one is marked as `stray`: what it left does not belong to the run.
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


def unstopped(tasks: Sequence[Mapping[str, Any]], hosts: Collection[str]) -> str:
    """Say which tasks of a run nobody could stop, for their hosts were not reached; empty where none."""
    names = [f"{task['name']} on {task['host']}" for task in tasks if task["host"] not in hosts]
    if not names:
        return ""
    return (
        f"Not reached, and perhaps still alive: {', '.join(names)}. Type stop.yml again when they can be "
        "reached, or on the host: systemctl stop 'psfleet-*@*'"
    )


def _leading(tasks: Sequence[Mapping[str, Any]], hosts: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return what the host of the run's lead says of it, {} where that host was not asked."""
    lead = lead_of(tasks)
    said: Sequence[Mapping[str, Any]] = hosts.get(lead["host"], {}).get("tasks", ())
    return next((task for task in said if task["name"] == lead["name"]), {})


def _left_out(tasks: Sequence[Mapping[str, Any]], hosts: Mapping[str, object]) -> list[str]:
    left_out = [f"{task['name']} on {task['host']}" for task in tasks if task["host"] not in hosts]
    if not left_out:
        return []
    return [
        f"Either --limit leaves out {', '.join(left_out)}, or these hosts gave no answer; a run needs every "
        "task: start it without --limit, when all hosts can be reached"
    ]


def _undeployed(plan: Mapping[str, Any], hosts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    bare = [host for host, found in hosts.items() if not found["deployed"]]
    problems = [f"run deploy.yml first, on these hosts: {', '.join(bare)}"] if bare else []
    other = [
        host for host in hosts if host not in bare and hosts[host]["deployed"].get("hash") != plan["hash"]
    ]
    if other:
        differences = "; ".join(_differences(hosts[other[0]]["deployed"], plan))
        problems.append(
            f"the plan deployed on {', '.join(other)} is not today's inventory ({differences}); "
            "run deploy.yml"
        )
    return problems


def _versions(hosts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say which hosts have which TensorFlow, where not all have one and the same.

    Their Pythons and what else their environments hold may differ: tasks exchange graphs and tensors, which
    are TensorFlow's own.
    """
    by_version: dict[str, list[str]] = {}
    for host, found in hosts.items():
        if found["deployed"]:  # of the others something else is said
            by_version.setdefault(found["tensorflow"] or "none that is whole", []).append(host)
    if len(by_version) < 2:
        return []
    which = "; ".join(f"{version} on {', '.join(names)}" for version, names in by_version.items())
    other = [name for version, names in by_version.items() if version != TENSORFLOW_VERSION for name in names]
    return [
        f"the hosts have different versions of TensorFlow ({which}): run deploy.yml on {', '.join(other)}"
    ]


def _without_cuda(plan: Mapping[str, Any], hosts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say on which hosts tasks have GPUs, and TensorFlow has no CUDA: a release that knew none deployed them.

    Its tasks would say nothing, and train on the CPU.
    """
    with_gpus = dict.fromkeys(task["host"] for task in plan["tasks"] if task["gpus"])
    lacking = [host for host in with_gpus if host in hosts and hosts[host]["lacks_cuda"]]
    if not lacking:
        return []
    return [f"tasks have GPUs on {', '.join(lacking)}, and TensorFlow there has no CUDA: run deploy.yml"]


def _differences(deployed: Mapping[str, Any], plan: Mapping[str, Any]) -> list[str]:
    then, now = _places(deployed), _places(plan)
    changed = [
        f"{name}: {then.get(name, 'no such task')} deployed, {now.get(name, 'no such task')} in the inventory"
        for name in sorted(then.keys() | now.keys())
        if then.get(name) != now.get(name)
    ]
    return changed or [f"hash {deployed.get('hash')} deployed, {plan['hash']} in the inventory"]


def _places(plan: Mapping[str, Any]) -> dict[str, str]:
    tasks: Sequence[Mapping[str, Any]] = plan.get("tasks", [])
    return {
        f"{task['job']}{task['index']}": (
            f"{task['host']} {task['address']}:{task['port']} GPUs {task['gpus']}"
        )
        for task in tasks
    }


def _other_runs(run_id: str, hosts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    going: dict[str, list[str]] = {}
    for host, found in hosts.items():
        for task in found["tasks"]:
            if task["alive"] and task["run_id"] != run_id:
                going.setdefault(task["run_id"], []).append(f"{task['name']} on {host}")
    return [
        f"run {other} is going on ({', '.join(tasks)}): watch it with ansible-playbook train.yml "
        f"-e run_id={other}, or end it with ansible-playbook stop.yml"
        for other, tasks in going.items()
    ]
