"""The summaries for TensorBoard that runs have left on the controller, and the runs that are going on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from psfleet.run.folder import begun_run, described_run
from trainer.contract.json_files import read_object

SUMMARIES = "summaries"
# Where the files of hosts go whose names another host has taken.
OTHER_HOSTS = "other_hosts"


def runs_of(runs_directory: Path, run_id: str, cluster_name: str) -> list[Path]:
    """Return the folders of one run, or of all runs of a cluster, by name.

    Raises ValueError where the run that is named has no folder.
    """
    if run_id:
        folder = runs_directory / run_id
        if Path(run_id).name != run_id or not folder.is_dir():
            raise ValueError(f"run_id is {run_id!r}; expected the name of a folder in {runs_directory}")
        return [folder]
    plans = runs_directory.glob("*/plan.json")
    return sorted(plan.parent for plan in plans if read_object(plan).get("cluster_name") == cluster_name)


def runs_going_on(runs: Sequence[Path]) -> list[dict[str, Any]]:
    """Return those that nobody has collected yet, each as the action `collect_run` takes it.

    Raises ValueError where a run's folder is damaged.
    """
    found = []
    for folder in runs:
        if read_object(folder / "state.json").get("state") == "running":
            try:
                settings, tasks = begun_run(folder)
            except (KeyError, ValueError) as error:
                raise ValueError(f"the run's folder {folder} is damaged: {error}") from error
            found.append(described_run(folder, settings, tasks))
    return found


def sources_of(runs: Sequence[Path]) -> dict[str, str]:
    """Return the folders with something to be shown, by the names that TensorBoard shows them under."""
    found = {run.name: run / SUMMARIES for run in runs}
    for run in runs:
        others = sorted((run / OTHER_HOSTS).glob(f"*/{SUMMARIES}"))
        found |= {f"{run.name}/{folder.parent.name}": folder for folder in others}
    return {name: str(folder) for name, folder in found.items() if any(folder.rglob("*tfevents*"))}
