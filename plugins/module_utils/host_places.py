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
from .saved_places import KEPT

_HASH = "[0-9a-f]" * HASH_DIGITS
# {directory of the fact cluster_paths: patterns of psfleet's files in it}; anything else there is foreign.
OWN: Mapping[str, tuple[str, ...]] = {
    "install_directory": (
        *("current", "environment", "tensorboard", "carried/tensorboard"),
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
    """Return whether the name of a unit is the name of one of psfleet's units."""
    return any(fnmatchcase(name, unit) for unit in UNITS)


@dataclass
class Removal:
    """What to remove: `gone` with everything in it, then `folders`, deepest first, if they are empty.

    `foreign` paths stay: psfleet did not make them, or they are mounts or an administrator's links.
    """

    gone: list[Path] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    foreign: list[Path] = field(default_factory=list)

    def add(self, other: Removal) -> None:
        """Add everything from `other`."""
        self.gone += other.gone
        self.folders += other.folders
        self.foreign += other.foreign

    @property
    def outermost(self) -> list[Path]:
        """The removed paths; paths inside a removed folder are left out."""
        return [path for path in (*self.gone, *self.folders) if not {*path.parents} & {*self.folders}]

    def remove(self) -> None:
        """Remove all of it. Raises ValueError and OSError."""
        for path in self.gone:
            remove_tree(path)
        for path in self.folders:
            with suppress(OSError), opened(path.parent) as folder:  # something was added to the folder
                os.rmdir(path.name, dir_fd=folder)


def sort_out(directory: Path, patterns: Collection[str], settled: Mapping[Path, bool]) -> Removal:
    """Return what to remove from a directory: the paths that match a pattern.

    If nothing else is in the directory, it is removed, too. `patterns` are relative to the directory; they
    also match temporary files (".name.x"). `settled` is {path that is handled elsewhere: whether it will be
    removed}. Raises OSError, and ValueError for a link that a user other than root could have put there.
    """
    found = Removal()
    try:
        with opened(directory) as folder:
            names = sorted(os.listdir(folder))  # noqa: PTH208 - no path
    except FileNotFoundError:
        return found
    parts = [pattern.partition("/") for pattern in patterns]
    for name in names:
        path = directory / name
        below = [rest for first, _, rest in parts if rest and fnmatchcase(name, first)]
        if path in settled:
            continue
        if any(_is_named(name, first) for first, _, rest in parts if not rest):
            found.gone.append(path)
        elif below and path.is_dir():
            found.add(sort_out(path, below, settled))
        else:
            found.foreign.append(path)
    going = {*found.gone, *found.folders, *(path for path, goes in settled.items() if goes)}
    if {directory / name for name in names} <= going:
        stays = directory.is_symlink() or str(directory) in _mounts()
        (found.foreign if stays else found.folders).append(directory)
    return found


def _mounts() -> set[str]:
    """Return the mount points, bind mounts within one disk included."""
    return {line.split()[1] for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()}


def _is_named(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f".{pattern}.*")


def remove_tree(path: Path) -> None:
    """Remove a file, a link, or a folder with its content, however deep, if it exists.

    No link is followed, except as `opened` does on the way to its folder, and no mount is entered. Raises
    ValueError if something remains.
    """
    with opened(path.parent) as folder:
        run_in(folder, "rm", "--recursive", "--force", "--one-file-system", "--", f"./{path.name}")


def give_to_root(path: Path, user: int) -> None:
    """Make root the owner of a folder, and of everything in it that `user` owns. Raises ValueError.

    The kernel removes set-id bits and capabilities; other rights stay.
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
    """The places on a host: those of the fact cluster_paths, and `data_directory`, which has carried data.

    `runs` and `data` say whether these are removed, too. sshd may read psfleet's file in `sshd_directories`,
    which all known systems name. `root` is the root of the host's file system.
    """

    paths: Mapping[str, str]
    data_directory: Path
    runs: bool = False
    data: bool = False
    root: Path = Path("/")
    sshd_directories: Collection[str] = ()

    def own(self, name: str, *parts: str) -> Path:
        """Return the path `parts` below the directory `name` of cluster_paths."""
        return Path(self.paths[name], *parts)

    @property
    def staying_runs(self) -> Path | None:
        """The directory of the runs, if runs stay in it; else None."""
        folder = self.own("state_directory", "runs")
        stays = not self.runs and folder.is_dir() and any(path.name != KEPT for path in folder.iterdir())
        return folder if stays else None

    @property
    def carried(self) -> list[CarriedRecord]:
        """The records of carried data, one for each directory that has such data."""
        directories = {self.own("install_directory", "data"), self.data_directory}
        records = self.own("install_directory", "carried")
        found = [CarriedRecord(directory, records) for directory in sorted(directories)]
        return [record for record in found if record.files]

    def removal(self) -> Removal:
        """Return what to remove, except carried data. Raises ValueError and OSError."""
        found = Removal()
        of_sshd = {directory.lstrip("/"): (SSHD_FILE,) for directory in self.sshd_directories}
        for name, patterns in {**of_sshd, **SHARED}.items():
            found.gone += sort_out(self.root / name, patterns, {}).gone
        if self.data_directory != self.own("install_directory", "data"):
            found.gone += sort_out(self.data_directory, [PARTIAL], {}).gone
        patterns_of = grouped((Path(self.paths[name]), each) for name in OWN for each in OWN[name])
        settled = self._settled()
        for directory in sorted(patterns_of, key=lambda path: len(path.parts), reverse=True):
            below = sort_out(directory, patterns_of[directory], settled)
            settled[directory] = directory in below.folders  # this directory may lie in another one
            found.add(below)
        return found

    def _settled(self) -> dict[Path, bool]:
        settled = {record.directory: self.data for record in self.carried}
        if self.staying_runs:
            settled[self.staying_runs] = False
        records = self.own("install_directory", "carried")
        # With these records, deploy.yml recognises its own files among data that stay.
        if not self.data and any(records.glob("*.json")):
            settled |= dict.fromkeys([*records.glob("*.json"), records / ".lock"], False)
        return settled
