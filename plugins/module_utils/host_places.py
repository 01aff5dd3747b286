"""The files that psfleet writes on a host: which of them exist, and how to remove them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from .carried_record import PARTIAL, CarriedRecord
from .content_directory import HASH_DIGITS
from .host.safe_directory import opened
from .host.task_units import UNIT_JOBS
from .host.wording import grouped
from .saved_places import TASKS_TMP

_HASH = "[0-9a-f]" * HASH_DIGITS
# {directory of the fact cluster_paths: patterns of psfleet's files in it}; anything else there is foreign.
OWN: Mapping[str, tuple[str, ...]] = {
    "install_directory": (
        *("current", "environment", f"environment-{_HASH}", "tensorboard", "carried/tensorboard"),
        *(f"releases/{name}" for name in (_HASH, ".lock", ".partial-*")),
        *(f"programs/{name}" for name in (_HASH, ".lock", ".partial-*")),
        *(f"environments/{name}" for name in (_HASH, ".lock", ".partial-*")),
        *(f"environments/{name}" for name in (f".work-{_HASH}", f".archive-{_HASH}")),
        *("carried/*.json", "carried/.lock", f"data/{PARTIAL}"),
    ),
    "configuration_directory": (
        *("plan.json", "deployed_by", "environment.env", "fence.nft", "fence.json", "metrics_directory"),
        *("ssh", "mesh"),
        *("tasks/*.env", "run/*.env", "run/*.boot", "run/*.json"),
    ),
    "state_directory": ("current", "current-*", "tensorboard/*", "runs/*"),
    "log_directory": ("current", "doctor-*.out", "*/*.out"),
}
UNITS = (
    *("psfleet.target", "psfleet-fence.service", "psfleet-mesh.service", "psfleet-gpu-devices.service"),
    *("psfleet-tensorboard.service", "psfleet-metrics.service", "psfleet-metrics.timer"),
    "psfleet-counting.service",  # exists for a moment while traffic is counted
    *(f"psfleet-{job}@*.service" for job in UNIT_JOBS),
    *("psfleet-doctor@*.service", "psfleet-journal@*.service"),
)
# This file is in the directory of the host's sshd; the description of the host's system has its path.
SSHD_FILE = "50-psfleet.conf"
# This file in /etc/tmpfiles.d makes /run/psfleet at each boot.
TMPFILES = "psfleet.conf"
# {directory that others use, too: patterns of psfleet's files in it}; these directories stay.
SHARED: Mapping[str, tuple[str, ...]] = {
    "etc/systemd/system": (
        *(pattern for unit in UNITS for pattern in (unit, f"{unit}.d", f"*.wants/{unit}")),
        "nftables.service.d/psfleet-fence.conf",
    ),
    "etc/tmpfiles.d": (TMPFILES,),
    "run": ("psfleet-doctor.lock", "psfleet.lease", "psfleet"),
    "var/tmp": ("psfleet-????????.tar.gz",),
    "dev/shm": ("psfleet-????????.tar.gz",),
}


def is_our_unit(name: str) -> bool:
    """Return whether `name` is the name of one of psfleet's systemd units."""
    return any(fnmatchcase(name, unit) for unit in UNITS)


@dataclass
class Removal:
    """What to remove: first the `trees`, with their content; then the `empty_folders`, deepest first.

    `foreign` are paths that stay: psfleet did not make them, or they are mounts or an administrator's links.
    """

    trees: list[Path] = field(default_factory=list)
    empty_folders: list[Path] = field(default_factory=list)
    foreign: list[Path] = field(default_factory=list)

    def add(self, other: Removal) -> None:
        """Add everything from `other`."""
        self.trees += other.trees
        self.empty_folders += other.empty_folders
        self.foreign += other.foreign

    @property
    def outermost(self) -> list[Path]:
        """The paths to remove, without those that lie inside another path to remove."""
        folders = {*self.empty_folders}
        return [path for path in (*self.trees, *self.empty_folders) if not folders.intersection(path.parents)]

    def remove(self) -> None:
        """Remove the trees, and then the folders that are empty; a folder that is not empty stays.

        Raises ValueError and OSError if a tree cannot be removed.
        """
        for path in self.trees:
            remove_tree(path)
        for path in self.empty_folders:
            with suppress(OSError), opened(path.parent) as folder:  # something was added to the folder
                os.rmdir(path.name, dir_fd=folder)


def removal_from(directory: Path, patterns: Collection[str], handled: Mapping[Path, bool]) -> Removal:
    """Return what to remove from a directory: the paths that match one of the `patterns`.

    If nothing else is in the directory, it is removed, too; else the other paths in it are foreign. A missing
    directory gives an empty Removal. `patterns` are relative to the directory, and also match temporary files
    (".name.x"). `handled` is {path that the caller handles itself: whether it will be removed}; these paths
    are not in the result. Raises OSError, and ValueError for a link that a user other than root could have
    made.
    """
    removal = Removal()
    try:
        with opened(directory) as folder:
            names = sorted(os.listdir(folder))  # noqa: PTH208 - no path
    except FileNotFoundError:
        return removal
    parts = [pattern.partition("/") for pattern in patterns]
    for name in names:
        path = directory / name
        below = [rest for first, _, rest in parts if rest and fnmatchcase(name, first)]
        if path in handled:
            continue
        if any(_is_named(name, first) for first, _, rest in parts if not rest):
            removal.trees.append(path)
        elif below and path.is_dir():
            removal.add(removal_from(path, below, handled))
        else:
            removal.foreign.append(path)
    going = {*removal.trees, *removal.empty_folders, *(path for path, goes in handled.items() if goes)}
    if {directory / name for name in names} <= going:
        stays = directory.is_symlink() or str(directory) in _mounts()
        (removal.foreign if stays else removal.empty_folders).append(directory)
    return removal


def _mounts() -> set[str]:
    """Return the mount points, bind mounts within one disk included."""
    return {line.split()[1] for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()}


def _is_named(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f".{pattern}.*")


def remove_tree(path: Path) -> None:
    """Remove a file, a link, or a folder with its content; do nothing if it does not exist.

    A link at `path` or in the folder is removed, not followed. No mount is entered. Raises ValueError if
    something remains, and OSError if the folder of `path` cannot be opened.
    """
    with opened(path.parent) as folder:
        run_in(folder, "rm", "--recursive", "--force", "--one-file-system", "--", f"./{path.name}")


def give_to_root(path: Path, user: int) -> None:
    """Make root the owner of the folder `path`, and of everything in it that the uid `user` owns.

    The kernel removes set-id bits and capabilities; other rights stay. Raises ValueError.
    """
    owner = f"--from={user}"
    with opened(path) as folder:
        run_in(
            folder, "chown", "--recursive", owner, "0:0", "--", "."
        )  # changes a link itself, not its target
        os.chown(folder, 0, 0)


def run_in(folder: int, *command: str) -> None:
    """Run a command in the directory with the descriptor `folder`.

    Raises ValueError with its output if it fails.
    """
    place = f"/proc/self/fd/{folder}"
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        where = os.readlink(place)  # noqa: PTH115 - no path
        raise ValueError(f"{where}: {done.stderr.strip()[-1000:]}")


@dataclass
class HostPlaces:
    """The directories on a host where psfleet writes.

    - `paths`: the fact cluster_paths. `data_directory`: where deploy.yml carries data.
    - `removes_runs`, `removes_data`: whether `removal` has the files of runs, and whether the caller removes
      the carried data.
    - `root`: the root of the host's file system.
    - `sshd_directories`: where psfleet's file for sshd may be, one directory for each known system.
    """

    paths: Mapping[str, str]
    data_directory: Path
    removes_runs: bool = False
    removes_data: bool = False
    root: Path = Path("/")
    sshd_directories: Collection[str] = ()

    def path(self, name: str, *parts: str) -> Path:
        """Return the path of `parts` below the directory `name` of cluster_paths.

        Example: path("state_directory", "runs") -> Path("/srv/state/runs")
        """
        return Path(self.paths[name], *parts)

    @property
    def staying_runs(self) -> Path | None:
        """The directory of the runs, if runs stay in it; None if `removes_runs`, or if it has no runs."""
        folder = self.path("state_directory", "runs")
        stays = (
            not self.removes_runs
            and folder.is_dir()
            and any(path.name != TASKS_TMP for path in folder.iterdir())
        )
        return folder if stays else None

    @property
    def carried_records(self) -> list[CarriedRecord]:
        """The records that have files: of the present data directory, and of the default one.

        They are sorted by directory; a directory whose record is missing or has no files is left out.
        """
        directories = {self.path("install_directory", "data"), self.data_directory}
        records = self.path("install_directory", "carried")
        found = [CarriedRecord(directory, records) for directory in sorted(directories)]
        return [record for record in found if record.files]

    def removal(self) -> Removal:
        """Return what to remove: everything of psfleet, but no carried data, and runs only if `removes_runs`.

        It removes nothing yet. Raises ValueError and OSError.
        """
        found = Removal()
        sshd_files = {directory.lstrip("/"): (SSHD_FILE,) for directory in self.sshd_directories}
        for name, patterns in {**sshd_files, **SHARED}.items():
            found.trees += removal_from(self.root / name, patterns, {}).trees
        if self.data_directory != self.path("install_directory", "data"):
            found.trees += removal_from(self.data_directory, [PARTIAL], {}).trees
        patterns_of = grouped((Path(self.paths[name]), each) for name in OWN for each in OWN[name])
        handled = self._handled()
        for directory in sorted(patterns_of, key=lambda path: len(path.parts), reverse=True):
            below = removal_from(directory, patterns_of[directory], handled)
            handled[directory] = directory in below.empty_folders  # this directory may lie in another one
            found.add(below)
        return found

    def _handled(self) -> dict[Path, bool]:
        handled = {record.directory: self.removes_data for record in self.carried_records}
        if self.staying_runs:
            handled[self.staying_runs] = False
        records = self.path("install_directory", "carried")
        # With these records, deploy.yml recognises its own files among data that stay.
        if not self.removes_data and any(records.glob("*.json")):
            handled |= dict.fromkeys([*records.glob("*.json"), records / ".lock"], False)
        return handled
