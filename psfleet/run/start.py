"""Decides from the hosts' state whether a run may start, is already going on, or must be collected."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from plugins.module_utils.environments.environment import TENSORFLOW_VERSION
from psfleet.run.active_runs import (
    RefusedError,
    begun_by,
    checked_run_id,
    other_runs,
    tasks_elsewhere,
    tasks_on,
)
from psfleet.run.folder import FolderState, lead_of
from trainer.contract.progress import printable
from trainer.host.wording import cut, first_of, grouped

_CHIEF = ("worker", 0)


@dataclass(frozen=True)
class Folder:
    """What the controller knows about the run from its folder.

    `state` is as `state_of` returns it. `plan_hash` is the hash of its plan. `program` is the program in its
    settings, None for a model; `model` is the user's own (`carried_model`), or None. `plan_tasks` are the
    tasks of its plan. `can_resize` is True if the run may go on with other numbers of ps and workers.
    `dispensable` has the names of the tasks that need not be there (places.py).
    """

    state: FolderState = ""
    plan_hash: str = ""
    program: Mapping[str, Any] | None = None
    model: Mapping[str, str] | None = None
    plan_tasks: Sequence[Mapping[str, Any]] = ()
    can_resize: bool = False
    dispensable: Collection[str] = ()


def decide(
    run_id: str,
    plan: Mapping[str, Any],
    tasks: Sequence[Mapping[str, Any]],
    hosts: Mapping[str, Mapping[str, Any]],
    folder: Folder,
) -> Literal["start", "attach", "collect"]:
    """Return what train.yml does: "start" or resume a run, "attach" to it, or "collect" it.

    "attach" if the run's lead is alive, "collect" if the lead has ended and the run was not collected, else
    "start".
    `plan` is the plan of today's inventory (`/etc/psfleet/plan.json` in docs/contracts.md), and `tasks` are
    the run's (`tasks_of_run`). `hosts` is {host that answered: its answer to the module `trainer_tasks`},
    with these fields:

    - `deployed` (a plan or {}), `deployed_by` (the last person who deployed, or ""),
    - `release` and `environment` (hashes, or ""), `programs` (hashes), `program_environments` ({key of a
      program's requirements: hash}),
    - `tensorflow` (the installed version, or ""), `lacks_cuda` (whether TensorFlow was built without CUDA),
    - `unfenced` (why the fence is not in force, or ""),
    - `holds_run` (whether files of this run exist there), `tasks`, and the failed `checks` of what tasks need
      to start.

    Raises RefusedError with every reason why the run may not start or go on.
    """
    checked_run_id(run_id)
    taking_part = {task["host"] for task in tasks}
    of_run = {host: found for host, found in hosts.items() if host in taking_part}
    lead = lead_of(tasks)
    on_lead = {task["name"]: task for task in hosts.get(lead["host"], {}).get("tasks", ())}
    leading = on_lead.get(lead["name"], {})
    of_lead = leading.get("run_id") == run_id
    attaches = of_lead and bool(leading["alive"])
    collects = of_lead and folder.state == "running" and leading["phase"] in {"finished", "failed"}
    needed = [task for task in tasks if task["name"] not in folder.dispensable]
    problems = [*_left_out(needed, hosts), *_undeployed(plan, of_run), *other_runs(run_id, hosts)]
    if not (attaches or collects):  # tasks that run, or ran, keep the versions that they started with
        problems += [
            *_tensorflow_problems(plan, of_run),
            *_unfenced(of_run),
            *_missing_release("program", folder.program, of_run),
            *_missing_environment(folder.program, of_run),
        ]
        with_model = {
            host: of_run[host] for host in of_run if any(_needs_model(task, host) for task in tasks)
        }
        problems += _missing_release("model", folder.model, with_model)
        problems += () if folder.state else _leftover_problems(run_id, of_run)
        problems += _unready(tasks, of_run, goes_on=bool(folder.state))
    if folder.state == "ended":
        problems.append(
            f"run_id {run_id} exists and has ended; choose another, or look at it with "
            f"ansible-playbook verify.yml -e run_id={run_id}"
        )
    elif folder.state and folder.plan_hash != plan["hash"]:
        moved = _moved(folder, plan, ends=not (attaches or collects))
        if moved:
            problems.append(
                f"run {run_id} began on plan {folder.plan_hash}, today's inventory is plan {plan['hash']}; "
                f"{moved}: put the inventory back, or begin a new run"
            )
    if problems:
        raise RefusedError(*problems)
    # Other tasks may still be alive: a program's ps, and workers that serve, run until train.yml stops them.
    return "attach" if attaches else "collect" if collects else "start"


def hindrances(
    plan: Mapping[str, Any],
    tasks: Sequence[Mapping[str, Any]],
    host: str,
    hosts: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """Return why tasks of a run that is going on cannot start on `host`; [] if they can.

    `hosts` must have the answers of `host` and of the lead's host. Other arguments as for `decide`.
    """
    own, with_lead = {host: hosts[host]}, {name: hosts[name] for name in (lead_of(tasks)["host"], host)}
    reasons = [*_undeployed(plan, own), *_tensorflow_problems(plan, with_lead), *_unfenced(own)]
    return [*reasons, *_unready([task for task in tasks if task["host"] == host], own, goes_on=True)]


def use_problems(hosts: Mapping[str, Mapping[str, Any]], plan: Mapping[str, Any]) -> list[str]:
    """Return why these hosts cannot be used for something else, in sentences; [] if they can.

    A host is not deployed, has another plan than `plan`, or a run is going on there. `hosts` and `plan` are
    as for `decide`.
    """
    return [*_undeployed(plan, hosts), *other_runs("", hosts)]


def _moved(folder: Folder, plan: Mapping[str, Any], *, ends: bool) -> str:
    """Return why a run cannot go on with another plan; "" if it may go on with other ps and workers.

    `ends` is True if the run has no task that is alive or not collected; if not, it cannot go on.
    """
    if not ends:
        return "it is still going on, or not collected, with the plan that it began on"
    was, now = (
        {(task["job"], task["index"]): task["host"] for task in of}
        for of in (folder.plan_tasks, plan["tasks"])
    )
    if was.get(_CHIEF) != now.get(_CHIEF):
        return "worker0 would change its host, and a run stays where its checkpoint is"
    if moved := [
        f"{job}{index}" for job, index in sorted(was.keys() & now) if was[job, index] != now[job, index]
    ]:
        return f"{first_of(moved)} would change its host, and a task's records lie on one host"
    other = (
        "only an asynchronous or synchronous model whose workers have no parts of their own goes on with "
        "other tasks"
    )
    return "" if folder.can_resize else other


def deploy_problems(
    hosts: Mapping[str, Mapping[str, Any]], plan: Mapping[str, Any], *, allowed: bool
) -> list[str]:
    """Return what the hosts lack, and which runs deploy.yml would disturb there; [] if nothing is in its way.

    `hosts` and `plan` are as for `decide`. With `allowed`, a run that is going on is no problem: the user
    permits a deployment beside it. A run on another plan is reported even then, because a deployment stops
    the tasks that leave the plan.
    """
    beside = (
        "; -e trainer_deploy_during_run=true deploys nevertheless, and the run keeps what it was started with"
    )
    busy = {host: its for host, its in hosts.items() if any(task["alive"] for task in its["tasks"])}
    # A task that is going on may hold the port of another task of today's plan.
    checks = {
        host: [check for check in its["checks"] if host not in busy or check["name"] != "ports"]
        for host, its in hosts.items()
    }
    lacking = [*_each_once(checks)]
    moved = [its["deployed"] for its in busy.values() if its["deployed"].get("hash") != plan["hash"]]
    if moved:
        changes = "; ".join(_differences(moved[0], plan))
        return [*lacking, *other_runs("", busy), f"its tasks would be ended by another plan: {changes}"]
    if not busy or allowed:
        return lacking
    return [*lacking, *other_runs("", busy, beside)]


def deployed_by_others(hosts: Mapping[str, Mapping[str, Any]], person: str) -> list[str]:
    """Return a sentence for each person other than `person` who deployed last on hosts; [] for none.

    Example: ["node1, node2: deployed last by ana@desk"]. `hosts` is as for `decide`; hosts that name nobody
    are left out.
    """
    others = grouped((str(found["deployed_by"]), host) for host, found in hosts.items())
    return [
        f"{', '.join(names)}: deployed last by {by}" for by, names in others.items() if by not in {"", person}
    ]


def _left_out(tasks: Sequence[Mapping[str, Any]], hosts: Collection[str]) -> Iterator[str]:
    if names := tasks_elsewhere(tasks, hosts):
        yield (
            f"Either --limit leaves out {names}, or these hosts gave no answer; a run needs every "
            "task: start it without --limit, when all hosts can be reached. An asynchronous run of a model "
            "can do without workers that training_run_success does not need to finish"
        )


def _undeployed(plan: Mapping[str, Any], hosts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    whole = ("deployed", "release", "environment")
    bare = [host for host, found in hosts.items() if not all(map(found.__getitem__, whole))]
    if bare:
        yield f"run deploy.yml first, on these hosts: {', '.join(bare)}"
    deployed = {host: found["deployed"] for host, found in hosts.items() if found["deployed"]}
    other = [host for host, its in deployed.items() if its.get("hash") != plan["hash"]]
    if other:
        differences = "; ".join(_differences(deployed[other[0]], plan))
        people = sorted({str(hosts[host]["deployed_by"]) for host in other} - {""})
        by = f", last by {first_of(people, 3, ' or ')}," if people else ""
        where = f"deployed on {', '.join(other)}{by}"
        yield f"the plan {where} is not today's inventory ({differences}); run deploy.yml"


def _tensorflow_problems(plan: Mapping[str, Any], hosts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a problem if deployed hosts have different versions of TensorFlow.

    Yield another if a host with GPUs in the plan has TensorFlow without CUDA. The versions of Python and of
    other packages may differ: tasks exchange only graphs and tensors, in TensorFlow's own formats.
    """
    by_version = grouped(
        (found["tensorflow"] or "no complete one", host)
        for host, found in hosts.items()
        if found["deployed"]  # _undeployed reports the others
    )
    if len(by_version) > 1:
        which = "; ".join(f"{version} on {', '.join(names)}" for version, names in by_version.items())
        by_version.pop(TENSORFLOW_VERSION, None)
        other = ", ".join(name for names in by_version.values() for name in names)
        yield f"the hosts have different versions of TensorFlow ({which}): run deploy.yml on {other}"
    # An older release without support for GPUs may be deployed there: the tasks would silently train on CPUs.
    with_gpus = dict.fromkeys(task["host"] for task in plan["tasks"] if task["gpus"])
    lacking = [host for host in with_gpus if host in hosts and hosts[host]["lacks_cuda"]]
    if lacking:
        yield f"tasks have GPUs on {', '.join(lacking)}, and TensorFlow there has no CUDA: run deploy.yml"


def _needs_model(task: Mapping[str, Any], host: str) -> bool:
    return bool(task["host"] == host and task["job"] != "ps")


def _missing_release(
    what: str, carried: Mapping[str, Any] | None, hosts: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Yield one problem if deployed hosts lack the run's program or model; `what` is "program" or "model".

    `carried` has its `release` and `file`; with None, the run has none, and nothing is yielded.
    """
    deployed = {host: its["programs"] for host, its in hosts.items() if its["deployed"]}
    if carried and (lacking := [host for host in deployed if carried["release"] not in deployed[host]]):
        yield f"the {what} {carried['file']} is not on {', '.join(lacking)}: run ansible-playbook deploy.yml"


def _missing_environment(
    program: Mapping[str, Any] | None, hosts: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Yield one problem if deployed hosts lack the environment that the run's program requires.

    Nothing for a model (None), and for a program without requirements.
    """
    deployed = {host: its["program_environments"] for host, its in hosts.items() if its["deployed"]}
    key = (program or {}).get("requirements")
    if key and (lacking := [host for host in deployed if key not in deployed[host]]):
        yield (
            f"the packages that the program {(program or {})['file'].rpartition('/')[2]} requires are not on "
            f"{', '.join(lacking)}: run ansible-playbook deploy.yml"
        )


def _unfenced(hosts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a problem for deployed hosts whose fence is not in force, one for each reason.

    There, the tasks' ports would be open to everyone.
    """
    reasons = grouped((str(found["unfenced"]), host) for host, found in hosts.items() if found["deployed"])
    for reason, names in reasons.items():
        if reason:
            yield (
                f"the ports of tasks are not fenced as deployed on {', '.join(names)} "
                f"({printable(reason)[:500]}): run ansible-playbook deploy.yml"
            )


def _unready(
    tasks: Sequence[Mapping[str, Any]], hosts: Mapping[str, Mapping[str, Any]], *, goes_on: bool
) -> Iterator[str]:
    """Yield a problem for what the run's tasks need to start and hosts lack: a free port, data, memory.

    With `goes_on`, a resumed run, data and memory are not checked: the run has the data and the model with
    which it began, which may differ from today's inventory.
    """
    of_run = {"", *(str(task["name"]).replace("server", "worker") for task in tasks)}
    needed = {
        host: [
            check
            for check in found["checks"]
            if check["task"] in of_run and not (goes_on and check["name"] in {"data", "memory"})
        ]
        for host, found in hosts.items()
    }
    yield from _each_once(needed)


def _each_once(checks: Mapping[str, Sequence[Mapping[str, str]]]) -> Iterator[str]:
    """Yield each failed check with its remedy, once for all hosts that have the same problem.

    `checks` is {host: its failed checks}. Example: "node1, node2: port 2222 is taken; stop what uses it"
    """
    failed = ((f"{each['found']}; {each['remedy']}", host) for host in checks for each in checks[host])
    for what, names in grouped(failed).items():
        yield f"{', '.join(names)}: {cut(printable(what), 500)}"


def _leftover_problems(run_id: str, hosts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield one problem if hosts have files of a run that is new here: it would resume from those files."""
    if names := [host for host, found in hosts.items() if found["holds_run"]]:
        yield (
            f"run_id {run_id} is new here, and {', '.join(names)} already has files of a run of that name"
            f"{begun_by(tasks_on(hosts), run_id)} (runs/{run_id} in the state directory): resume it from the "
            "controller where it began, choose another run_id, or remove the files there"
        )


def _differences(deployed: Mapping[str, Any], plan: Mapping[str, Any]) -> list[str]:
    then, now = _places(deployed), _places(plan)
    changed = [
        f"{name}: {then.get(name, 'no such task')} deployed, {now.get(name, 'no such task')} in the inventory"
        for name in sorted(then.keys() | now.keys())
        if then.get(name) != now.get(name)
    ]
    return changed or [f"hash {deployed.get('hash')} deployed, {plan['hash']} in the inventory"]


def _places(plan: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"{task['job']}{task['index']}": (
            f"{task['host']} {task['address']}:{task['port']} GPUs {task['gpus']}"
        )
        for task in plan.get("tasks", ())
    }
