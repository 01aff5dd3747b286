"""The links with which a host's units find the directory and the logs of the present run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..content_directory import point, points_to
from ..host.task_traces import RUN_ID, run_file, run_id_of
from ..host.task_units import is_alive, show_units, task_of

_NAME = "current"


class RunLinks:
    """The two links `current` on one host, to a run's directory and to the run's logs.

    `paths` is the fact cluster_paths.
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self.configuration = Path(paths["configuration_directory"])
        self.state, self.logs = Path(paths["state_directory"]), Path(paths["log_directory"])

    def run_of(self, loaded: Sequence[str]) -> str:
        """Return the run whose tasks are alive among these `loaded` units.

        Return "" if no task or tasks of several runs are alive, or if the run has no directory.
        """
        tasks = [unit for unit in loaded if task_of(unit)]
        shown = zip(tasks, show_units(tasks, ("ActiveState", "Job")) if tasks else [], strict=True)
        alive = [task for unit, values in shown if is_alive(values) and (task := task_of(unit))]
        return self.only_run({run_id_of(run_file(self.configuration, *task)) for task in alive})

    def only_run(self, runs: set[str]) -> str:
        """Return the only run in `runs`; "" if there are several or none, or if it has no directory.

        A link in place of the directory does not count: in earlier versions of psfleet, tasks could make it.
        """
        run_id = next(iter(runs)) if len(runs) == 1 else ""
        place = self.state / "runs" / run_id
        return run_id if RUN_ID.fullmatch(run_id) and place.is_dir() and not place.is_symlink() else ""

    def all_point_to(self, run_id: str) -> bool:
        """Return whether both links exist and point to this run."""
        return all(points_to(link, target) for link, target in self._links(run_id))

    def point_to(self, run_id: str) -> None:
        """Make or change both links to point to this run, which need not exist.

        Raises ValueError if something other than a link is in the place of a link.
        """
        for link, target in self._links(run_id):
            if not points_to(link, target):
                point(link, target)

    def _links(self, run_id: str) -> list[tuple[Path, str]]:
        return [(self.logs / _NAME, run_id), (self.state / _NAME, f"runs/{run_id}")]
