"""Finds and removes releases and environments of one host that nothing needs any more."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .content_directory import HASH_DIGITS
from .host.safe_directory import directories_in, is_ours_alone, opened
from .host.task_traces import bytes_of
from .host_places import remove_tree

KINDS = ("releases", "programs", "environments")
HASH = re.compile(rf"[0-9a-f]{{{HASH_DIGITS}}}")
# An interrupted unpacking or removal leaves directories with such names; nothing uses them.
PARTIAL = ".partial-"
# An environment may be installed meanwhile, by tensorboard.yml or by another deploy.yml.
LOCK_TIMEOUT_SECONDS = 900


def older_names(last_wanted: Mapping[str, int], wanted: Collection[str], keep: int) -> list[str]:
    """Return, sorted, the names that none of the newest `keep` deployments wanted, the present one included.

    `last_wanted` is {name: time when a deployment last wanted it}; `wanted` are the names that the present
    deployment wants. Names with the same time stay or go together, because one deployment wanted them.
    """
    others = {name: moment for name, moment in last_wanted.items() if name not in wanted}
    newest = sorted(set(others.values()), reverse=True)[: keep - 1]
    return sorted(name for name, moment in others.items() if moment not in newest)


@dataclass(frozen=True)
class Content:
    """The releases, programs and environments in `install_directory`, each in the folder of its kind.

    `run_directory` has the environment and settings files of the tasks' last runs. `processes` is /proc.
    """

    install_directory: Path
    run_directory: Path
    processes: Path = Path("/proc")

    def unneeded(self, wanted: Collection[str], keep: int) -> list[Path]:
        """Return the paths to remove: of each kind, what `older_names` returns, if nothing uses it.

        Remainders of interrupted deployments are among them. Raises OSError and ValueError.
        """
        going = []
        for kind in KINDS:
            folder, times = self.install_directory / kind, self._own_directories(kind)
            going += [folder / name for name in times if name.startswith(PARTIAL)]
            times = {name: moment for name, moment in times.items() if HASH.fullmatch(name)}
            candidates = older_names(times, wanted, keep)
            going += [folder / name for name in candidates if not self._is_in_use(kind, name)]
        return going

    def mark_wanted(self, wanted: Collection[str]) -> None:
        """Set the modification time of the directories in `wanted` to now. Raises OSError and ValueError."""
        now = time.time_ns()
        for kind in KINDS:
            for name in {*self._own_directories(kind)} & {*wanted}:
                with opened(self.install_directory / kind) as folder:
                    os.utime(name, ns=(now, now), dir_fd=folder, follow_symlinks=False)

    def _own_directories(self, kind: str) -> dict[str, int]:
        """Return {name: modification time in nanoseconds} of the directories of a kind that psfleet made."""
        statuses = {}
        with suppress(FileNotFoundError), opened(self.install_directory / kind) as folder:
            if not is_ours_alone(folder):
                raise ValueError(f"{self.install_directory / kind} can be changed by others than root")
            statuses = directories_in(folder)
        ours = (0, os.geteuid())
        return {
            name: status.st_mtime_ns
            for name, status in statuses.items()
            if HASH.fullmatch(name.removeprefix(PARTIAL)) and status.st_uid in ours
        }

    def _is_in_use(self, kind: str, name: str) -> bool:
        links = [path for path in self.install_directory.iterdir() if path.is_symlink()]
        if f"{kind}/{name}" in map(os.readlink, links):
            return True
        run_files = (*self.run_directory.glob("*.env"), *self.run_directory.glob("*.json"))
        if any(name.encode() in bytes_of(path) for path in run_files):
            return True
        lines = self.processes.glob("[0-9]*/cmdline")
        return any(f"/{kind}/{name}/".encode() in bytes_of(path) for path in lines)


def remove(path: Path) -> None:
    """Rename a directory, then remove it with its content, so that no incomplete directory has its name.

    Raises OSError and ValueError.
    """
    aside = path if path.name.startswith(PARTIAL) else path.with_name(f"{PARTIAL}{path.name}")
    if aside != path:
        with opened(path.parent) as folder:
            os.rename(path.name, aside.name, src_dir_fd=folder, dst_dir_fd=folder)
    remove_tree(aside)
