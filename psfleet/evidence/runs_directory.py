"""Chooses the folder in the runs directory that is to be judged."""

from pathlib import Path

from psfleet.evidence.verdict import FILE_NAME
from psfleet.run.active_runs import RUN_ID_RULE
from trainer.contract.json_files import read_object
from trainer.contract.rules import as_given
from trainer.host.task_traces import RUN_ID
from trainer.host.wording import first_of


class NoSuchRunError(ValueError):
    """No run of this name can be judged; the message says why, and which runs exist."""


def find_run(runs_directory: Path, run_id: str | None) -> Path:
    """Return the folder of the run `run_id`, or of the newest run if `run_id` is None.

    Raises NoSuchRunError if the name is invalid, if there is no such run, or if the run is still going on:
    its state is "running", and no manifest was collected. The newest run has the newest plan.json.
    """
    if run_id is not None and not RUN_ID.fullmatch(run_id):
        raise NoSuchRunError(
            f"run_id is {as_given(run_id)}; expected {RUN_ID_RULE}. {_what_exists(runs_directory)}"
        )
    newest = next(iter(newest_first(runs_directory)), None)
    folder = runs_directory / run_id if run_id is not None else newest
    if folder is None:
        raise NoSuchRunError(_what_exists(runs_directory))
    if not folder.is_dir():
        raise NoSuchRunError(f"there is no run {run_id!r}. {_what_exists(runs_directory)}")
    # train.yml started it and has not collected its records yet.
    if not (folder / FILE_NAME).exists() and read_object(folder / "state.json").get("state") == "running":
        raise NoSuchRunError(
            f"run {folder.name} is still going on, so there is nothing to judge yet: "
            f"ansible-playbook train.yml -e run_id={folder.name} attaches to it and judges it at its end"
        )
    return folder


def newest_first(runs_directory: Path) -> list[Path]:
    """Return the folders of all runs, the folder with the newest plan.json first.

    Folders without a plan.json are left out. Return [] if there is no run, or no such directory.
    """
    if not runs_directory.is_dir():
        return []
    plans = [folder / "plan.json" for folder in runs_directory.iterdir() if (folder / "plan.json").is_file()]
    plans.sort(key=lambda plan: (plan.stat().st_mtime, plan.parent.name), reverse=True)
    return [plan.parent for plan in plans]


def _what_exists(runs_directory: Path) -> str:
    names = [folder.name for folder in newest_first(runs_directory)]
    if not names:
        return f"There is no run in {runs_directory} yet: ansible-playbook train.yml makes one"
    return f"The runs that exist are {first_of(names)} (in {runs_directory})"
