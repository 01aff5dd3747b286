"""What a run's folder on the controller says of the run and its tasks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, Literal

from psfleet.run.settings_file import RunSettings
from trainer.contract import task_names
from trainer.contract.json_files import read_object, write_json
from trainer.contract.plan import ClusterPlan
from trainer.contract.run_tasks import run_tasks
from trainer.contract.settings import TrainingSettings

# What state.json in the run folder says, as train.yml and stop.yml leave it; "" where there is no folder.
FolderState = Literal["", "running", "stopped", "failed", "ended"]


def state_of(folder: Path) -> FolderState:
    """Return what the run folder's state.json says; a folder without one counts as ended."""
    if not folder.exists():
        return ""
    state = read_object(folder / "state.json").get("state")
    return state if state in {"running", "stopped", "failed"} else "ended"


def uncollected(runs_directory: Path, cluster_name: str) -> list[str]:
    """Return the runs of a cluster that were begun from here, and neither collected nor stopped."""
    folders = sorted(path.parent for path in runs_directory.glob("*/state.json"))
    return [
        folder.name
        for folder in folders
        if state_of(folder) == "running"
        and read_object(folder / "plan.json").get("cluster_name") == cluster_name
    ]


def was_left_out(folder: Path) -> bool | None:
    """Tell whether something of a run that was collected stayed on hosts; None where nobody has noted it."""
    left_out = read_object(folder / "state.json").get("left_out")
    return bool(left_out) if isinstance(left_out, list) else None


def collected_whole(folder: Path, cluster_name: str) -> bool:
    """Tell whether hosts may forget a run: it is of this cluster, has ended, and all of it is here."""
    ended = state_of(folder) == "ended" and was_left_out(folder) is False
    return ended and read_object(folder / "plan.json").get("cluster_name") == cluster_name


def begun_settings(folder: Path) -> dict[str, Any]:
    """Return what a run began with, as `run_settings` returns it; empty for a run that is new.

    Raises ValueError where its folder does not say that.
    """
    content = read_object(folder / "settings.json")
    if not content:
        return {}
    if not content.keys() >= {"training", "tasks"}:
        raise ValueError("the field training or tasks is missing")
    values = RunSettings.from_json(content)
    return {"cluster": values.training, "tasks": values.tasks, "program": values.program}


def tasks_of_run(plan: Mapping[str, Any], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tasks of a run on this plan, each with its `name` and the fields of a RunTask.

    What a run of an older release lacks in its settings has its default. Raises ValueError where the plan or
    the settings are damaged.
    """
    training = TrainingSettings.from_mapping(settings["cluster"])
    tasks = run_tasks(ClusterPlan.from_json(plan), training, settings.get("program") is not None)
    return [{"name": task.name, **asdict(task)} for task in tasks]


def begun_run(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the settings and the tasks that a run began with.

    Raises KeyError or ValueError where its folder does not say them.
    """
    settings = begun_settings(folder)
    return settings, tasks_of_run(read_object(folder / "plan.json"), settings)


def described_run(
    folder: Path, settings: Mapping[str, Any], tasks: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return a run as the playbooks know it: `id`, `folder`, `settings`, `tasks` and `lead`."""
    there, _ = RunSettings.usable(read_object(folder / "settings.json"))
    values = RunSettings(
        training=settings["cluster"],
        tasks=settings["tasks"],
        program=settings.get("program"),
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


def names_of_new(cluster_name: str, now: datetime) -> Iterator[str]:
    """Yield what a run that begins now may be called: the next is for where the ones before are taken."""
    first = f"{cluster_name}-{now:%Y%m%d-%H%M%S}"
    yield first
    for place in count(2):
        yield f"{first}-{place}"


def make_folder(folder: Path, *, exist_ok: bool) -> None:
    """Make the folder of a run. That of all runs, where there is none, is for who makes it alone.

    Raises OSError, FileExistsError among them: of two that begin at once one alone makes it.
    """
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(exist_ok=exist_ok)


def write_beginning(run: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Write the plan and the settings of a run into its folder, which is made. Raises OSError."""
    folder = Path(run["folder"])
    make_folder(folder, exist_ok=True)
    for name, content in {"plan.json": plan, "settings.json": run["settings"]}.items():
        # A run that is stopped keeps what it was started with.
        if "action" in run or not (folder / name).exists():
            write_json(folder / name, content, indent=4)


def lead_of(tasks: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the task whose end is the run's."""
    by_name = {task["name"]: task for task in tasks}
    return by_name[task_names.lead_of(by_name)]
