"""The runs of which a host still has files, in the directories of state and of logs."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..host.safe_directory import directories_in, opened
from ..host.task_traces import RUN_ID, number, read_object, run_file, run_id_of
from ..host.task_units import parse_list, systemctl, task_of
from ..host_places import remove_tree
from ..saved_places import TASKS_TMP

MOST_RUNS = 4000
DISK_USAGE = ("/usr/bin/timeout", "300", "/usr/bin/du")


class Runs:
    """The runs of which this host has files.

    - `directories`: {place: {run: when its directory there was last changed}}; a place is a directory with a
      folder for each run.
    - `changed`: {run: the latest of these times}. All are in Unix seconds.
    """

    def __init__(self, paths: Mapping[str, str]) -> None:
        self.configuration = Path(paths["configuration_directory"])
        self.state = Path(paths["state_directory"], "runs")
        # The second place has the /tmp of each task.
        places = (self.state, self.state / TASKS_TMP, Path(paths["log_directory"]))
        self.directories = {place: runs_in(place) for place in places}
        self.changed: dict[str, float] = {}
        for found in self.directories.values():
            for name, moment in found.items():
                self.changed[name] = max(moment, self.changed.get(name, moment))

    def newest(self) -> list[dict[str, Any]]:
        """Return an object for each run, the last changed one first, at most MOST_RUNS.

        It has `run_id`, `size` in bytes, `changed` in Unix seconds, and `global_step` (None if the run
        reported none on this host).
        """
        names = sorted(self.changed, key=self.changed.__getitem__, reverse=True)[:MOST_RUNS]
        sizes = self.sizes(names)
        return [
            {
                "run_id": name,
                "size": sizes[name],
                "changed": self.changed[name],
                "global_step": number(read_object(self.state / name / "progress.json").get("global_step")),
            }
            for name in names
        ]

    def sizes(self, names: Collection[str]) -> dict[str, int]:
        """Return {run: disk space of its files on this host, in bytes}; 0 for a run without files."""
        every = [disk_usage(place, sorted({*found} & {*names})) for place, found in self.directories.items()]
        return {name: sum(sizes.get(name, 0) for sizes in every) for name in names}

    def unneeded(self, collected: Sequence[str], stay: int) -> list[str]:
        """Return the runs to remove: of the `collected` runs on this host, all after the first `stay`.

        `collected` has the newest run first, and so has the result. A run with a task that is alive is left
        out.
        """
        present = [name for name in collected if name in self.changed]
        alive = self._alive()
        return [name for name in present[stay:] if name not in alive]

    def _alive(self) -> set[str]:
        states = "--state=active,reloading,activating,deactivating"
        units = parse_list(systemctl("list-units", states, "--plain", "--no-legend", "psfleet-*@*.service"))
        return {run_id_of(run_file(self.configuration, *task)) for unit in units if (task := task_of(unit))}

    def remove(self, name: str) -> str:
        """Remove the files of a run from this host; return "", or in words why that failed.

        A run without files is no error.
        """
        try:
            for place, found in self.directories.items():
                if name in found:
                    remove_tree(place / name)
        except (OSError, ValueError) as error:
            return f"run {name} could not be removed: {error}"
        return ""


def runs_in(place: Path) -> dict[str, float]:
    """Return {run: Unix time of its last change} for the directories of runs in `place`; {} without `place`.

    Directories whose names are no run ids are left out.
    """
    with suppress(FileNotFoundError), opened(place) as folder:
        statuses = directories_in(folder)
        return {name: status.st_mtime for name, status in statuses.items() if RUN_ID.fullmatch(name)}
    return {}


def disk_usage(place: Path, names: Sequence[str]) -> dict[str, int]:
    """Return {name: disk space in bytes} of directories in `place`; a directory that vanished is left out.

    The tasks' user owns them and may change them meanwhile, so no link is followed.
    """
    if not names:
        return {}
    with opened(place) as folder:
        done = subprocess.run(
            [*DISK_USAGE, "--summarize", "--one-file-system", "--block-size=1", "--", *names],
            cwd=f"/proc/self/fd/{folder}",
            capture_output=True,
            text=True,
            errors="replace",
            check=False,  # a task may have removed a file, or add some faster than they are counted
        )
    lines = (line.partition("\t") for line in done.stdout.splitlines())
    return {name: int(size) for size, _, name in lines}
