"""Reads and writes a run's folder on the controller."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, Literal

from psfleet.inventory.success_policy import ALL_WORKERS
from psfleet.run.settings_file import RunSettings
from trainer.contract import task_names
from trainer.contract.json_files import read_object, write_json
from trainer.contract.plan import ClusterPlan
from trainer.contract.run_tasks import run_tasks
from trainer.contract.settings import TrainingSettings

# The state in the state.json of a run's folder, as train.yml and stop.yml write it; "" if there is no folder.
FolderState = Literal["", "running", "stopped", "failed", "ended"]


def state_of(folder: Path) -> FolderState:
    """Return the state in the state.json of a run's folder: "running", "stopped", "failed" or "ended".

    A folder without that file, or with another state there, counts as "ended". Return "" if there is no
    folder.
    """
    if not folder.exists():
        return ""
    state = read_object(folder / "state.json").get("state")
    return state if state in {"running", "stopped", "failed"} else "ended"


def uncollected_runs(runs_directory: Path, plan: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return {run id: its hosts that today's `plan` lacks} for the runs whose state is "running".

    Such a run is neither collected nor stopped. Only runs of this cluster that started from here are in it;
    the hosts are sorted, [] if the plan has all of them. A run with hosts that the plan lacks was started
    with another inventory, and may still be going on there.
    """
    folders = sorted(path.parent for path in runs_directory.glob("*/state.json"))
    plans = {folder: read_object(folder / "plan.json") for folder in folders if state_of(folder) == "running"}
    today = {str(task["host"]) for task in plan["tasks"]}
    return {
        folder.name: sorted({str(task["host"]) for task in begun.get("tasks", ())} - today)
        for folder, begun in plans.items()
        if begun.get("cluster_name") == plan["cluster_name"]
    }


def has_files_on_hosts(folder: Path) -> bool | None:
    """Return whether some files of a collected run stayed on hosts, by `left_out` of its state.json.

    Return None if state.json is missing or does not say so.
    """
    left_out = read_object(folder / "state.json").get("left_out")
    return bool(left_out) if isinstance(left_out, list) else None


def lacks_files(folder: Path) -> bool:
    """Return whether a run has ended and some of its files stayed on hosts; False if that is unknown."""
    return state_of(folder) == "ended" and has_files_on_hosts(folder) is True


def left_out_entries(
    folder: Path, tasks: Iterable[Mapping[str, Any]], collected: Iterable[str], left_out: Iterable[str]
) -> list[str]:
    """Return the new entries of `left_out` in state.json, after the hosts `collected` were collected again.

    These are the old entries in the run's folder, except those of `collected`, then `left_out`, the entries
    of these hosts now. An entry begins with the name of a host or a task, as in "worker1: no answer". `tasks`
    are the run's (`tasks_of_run`).
    """
    hosts = {str(task["name"]): str(task["host"]) for task in tasks}
    before = [str(entry) for entry in read_object(folder / "state.json").get("left_out", [])]
    names = [entry.partition(": ")[0] for entry in before]
    again = {*collected}
    others = [entry for entry, name in zip(before, names, strict=True) if hosts.get(name, name) not in again]
    return [*others, *left_out]


def hosts_may_delete(folder: Path, cluster_name: str) -> bool:
    """Return whether hosts may delete a run: it is of this cluster, has ended, and was collected in full.

    False if one of these is unknown.
    """
    ended = state_of(folder) == "ended" and has_files_on_hosts(folder) is False
    return ended and read_object(folder / "plan.json").get("cluster_name") == cluster_name


def saved_settings(folder: Path) -> dict[str, Any]:
    """Return the settings in a run's folder, in the form of `run_settings`.

    Return {} if settings.json is missing, as for a new run, or is no JSON object. Raises ValueError if it
    lacks fields or has invalid ones.
    """
    content = read_object(folder / "settings.json")
    if not content:
        return {}
    if not content.keys() >= {"training", "tasks"}:
        raise ValueError("the field training or tasks is missing")
    values = RunSettings.from_json(content)
    return {
        "cluster": values.training,
        "tasks": values.tasks,
        "program": values.program,
        "success": values.success,
        "card": values.card,
    }


def tasks_of_run(plan: Mapping[str, Any], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tasks of a run on this plan, each as a dictionary of its `name` and the fields of a RunTask.

    `settings` are in the form of `run_settings`. A setting that the run lacks, because it is of an older
    release, has its default. Raises ValueError if the plan or the settings are damaged.
    """
    training = TrainingSettings.from_mapping(settings["cluster"])
    tasks = run_tasks(ClusterPlan.from_json(plan), training, settings.get("program") is not None)
    return [{"name": task.name, **asdict(task)} for task in tasks]


def saved_run(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return (settings, tasks) of a run from its folder, as `saved_settings` and `tasks_of_run` return them.

    Raises KeyError or ValueError if settings.json or plan.json is missing or damaged.
    """
    settings = saved_settings(folder)
    return settings, tasks_of_run(read_object(folder / "plan.json"), settings)


def run_for_playbooks(
    folder: Path, settings: Mapping[str, Any], tasks: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return a run in the form that playbooks use: `id`, `folder`, `settings`, `tasks` and `lead`.

    `id` is the name of the folder, `folder` its path as text, `settings` the content for settings.json,
    `tasks` the tasks, and `lead` the task that leads. The arguments: `settings` are in the form of
    `run_settings`, `tasks` are from `tasks_of_run`. From a settings.json in the folder, `begun` and
    `evidence` stay.
    """
    there, _ = RunSettings.from_valid_fields(read_object(folder / "settings.json"))
    values = RunSettings(
        training=settings["cluster"],
        tasks=settings["tasks"],
        program=settings.get("program"),
        card=settings.get("card"),
        success=settings.get("success", ALL_WORKERS),
        begun=there.begun,
        evidence=there.evidence,
    )
    return {
        "id": folder.name,
        "folder": str(folder),
        "settings": values.to_json(),
        "tasks": tasks,
        "lead": lead_of(tasks),
    }


def new_run_names(cluster_name: str, now: datetime) -> Iterator[str]:
    """Yield names for a new run, without end: "cluster-20260131-120000", then "cluster-20260131-120000-2".

    The caller uses the first name that is not taken.
    """
    first = f"{cluster_name}-{now:%Y%m%d-%H%M%S}"
    yield first
    for place in count(2):
        yield f"{first}-{place}"


def make_folder(folder: Path, *, exist_ok: bool) -> None:
    """Create the folder of a run; if the folder of all runs is missing, create it for its owner alone.

    Raises FileExistsError if the folder of the run exists, unless `exist_ok`: so if several runs start with
    the same name at once, only one of them gets it. Raises OSError.
    """
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(exist_ok=exist_ok)


def write_beginning(run: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Create the folder of a run, and write plan.json and settings.json into it. Raises OSError.

    `run` has the form of `run_for_playbooks`. If it has the field `action`, as with train.yml, existing files
    are replaced; else they stay, because a run that is being stopped keeps the files with which it started.
    """
    folder = Path(run["folder"])
    make_folder(folder, exist_ok=True)
    if parts := _earlier_parts(folder, plan):
        plan = {**plan, "earlier": parts}
    for name, content in {"plan.json": plan, "settings.json": run["settings"]}.items():
        # A run that is being stopped keeps the files with which it started.
        if "action" in run or not (folder / name).exists():
            write_json(folder / name, content, indent=4)


def _earlier_parts(folder: Path, plan: Mapping[str, Any]) -> list[Any]:
    """Return the earlier parts of a run that goes on with this plan, oldest first; [] if there are none.

    The plan in the folder is one of them if its hash is another. A part is {"plan": its plan, "endings": the
    content of tasks.json, or None if that file is missing or damaged}.
    """
    was = read_object(folder / "plan.json")
    earlier = was.pop("earlier", [])
    parts = [*earlier] if isinstance(earlier, list) else []
    if was and was.get("hash") != plan["hash"]:
        endings = None
        with suppress(OSError, ValueError, RecursionError):
            endings = json.loads((folder / "tasks.json").read_text(encoding="utf-8"))
        parts.append({"plan": was, "endings": endings})
    return parts


def lead_of(tasks: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the run's lead among `tasks`, whose end is the end of the run: chief0, else worker0."""
    by_name = {task["name"]: task for task in tasks}
    return by_name[task_names.lead_of(by_name)]
