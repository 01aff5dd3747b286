"""Finds the summaries for TensorBoard on the controller, and the runs that are still going on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from psfleet.run.active_runs import checked_run_id
from psfleet.run.folder import run_for_playbooks, saved_run
from trainer.contract.json_files import read_object

SUMMARIES = "summaries"
# Every file that TensorBoard reads has this in its name, whichever program writes it.
EVENTS = "tfevents"
# This folder holds files of hosts whose names clash with files of another host.
OTHER_HOSTS = "other_hosts"


def run_folders(runs_directory: Path, run_id: str, cluster_name: str) -> list[Path]:
    """Return the folders of the runs that `run_id` names, each once, in that order; commas separate names.

    If `run_id` is "", return the folders of all runs whose plan is of the cluster, sorted by name; [] if
    there is none. Raises ValueError if a name breaks RUN_ID_RULE, or has no folder.
    """
    if run_id:
        names = [name.strip() for name in run_id.split(",") if name.strip()] or [run_id]
        for name in names:
            if not (runs_directory / checked_run_id(name)).is_dir():
                raise ValueError(f"run_id is {name!r}; expected the name of a folder in {runs_directory}")
        return [runs_directory / name for name in dict.fromkeys(names)]
    plans = runs_directory.glob("*/plan.json")
    return sorted(plan.parent for plan in plans if read_object(plan).get("cluster_name") == cluster_name)


def runs_going_on(runs: Sequence[Path]) -> list[dict[str, Any]]:
    """Return those of `runs` that are not collected yet, each in the form of `run_for_playbooks`.

    `runs` are folders; a run counts if the state in its state.json is "running". Raises ValueError if the
    folder of such a run is damaged.
    """
    found = []
    for folder in runs:
        if read_object(folder / "state.json").get("state") == "running":
            try:
                settings, tasks = saved_run(folder)
            except (KeyError, ValueError) as error:
                raise ValueError(f"the run's folder {folder} is damaged: {error}") from error
            found.append(run_for_playbooks(folder, settings, tasks))
    return found


def summary_folders(runs: Sequence[Path]) -> dict[str, str]:
    """Return {name that TensorBoard shows: path of a folder with files for TensorBoard}.

    `runs` are folders of runs. The name is the run's for its folder `summaries`, and "run1/folder" for
    another folder; files of another host have "run1/host" or "run1/host/folder". Folders without such files
    are left out.
    """
    found = {}
    for run in runs:
        for of_host in (run, *sorted((run / OTHER_HOSTS).glob("*"))):
            name = run.name if of_host is run else f"{run.name}/{of_host.name}"
            for folder in sorted(path for path in of_host.iterdir() if path.is_dir()):
                if folder.name != OTHER_HOSTS and any(folder.rglob(f"*{EVENTS}*")):
                    found[name if folder.name == SUMMARIES else f"{name}/{folder.name}"] = str(folder)
    return found
