"""Finds and removes releases and environments of one host that nothing needs any more."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Sequence
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


@dataclass(frozen=True)
class StoredContent:
    """A release, program or environment on a host; `name` is its hash, after ".partial-" if it is incomplete.

    - `kind`: "releases", "programs" or "environments". `last_wanted`: when a deployment last wanted it, in
      Unix seconds.
    - `in_use`: whether a link, a task's last run or a process uses it.
    """

    kind: str
    name: str
    last_wanted: float
    in_use: bool


def content_to_remove(
    stored: Sequence[StoredContent], wanted: Collection[str], keep: int
) -> list[StoredContent]:
    """Return the content to remove, by kind, then by name.

    Content stays if it is in use, if the present deployment wants it (its name is in `wanted`), or if one of
    the `keep` - 1 deployments before wanted it. Content with the same `last_wanted` stays or goes together,
    as one deployment wanted it. Incomplete content is always removed.

    Example, with keep=2: content last wanted at 1, 2 and 2, and not by this deployment -> the content of 1.
    """
    going = []
    for kind in KINDS:
        of_kind = sorted((each for each in stored if each.kind == kind), key=lambda each: each.name)
        whole = [each for each in of_kind if not each.name.startswith(PARTIAL)]
        others = [each for each in whole if each.name not in wanted]
        newest = sorted({each.last_wanted for each in others}, reverse=True)[: keep - 1]
        going += [each for each in of_kind if each not in whole]
        going += [each for each in others if not each.in_use and each.last_wanted not in newest]
    return going


def settled_names(stored: Sequence[StoredContent], keep: int) -> list[str]:
    """Return, sorted, the names that the last deployment wanted; [] if it left content to remove.

    A new deployment that wants exactly these names has nothing to remove, and no time to set.
    """
    newest = max((each.last_wanted for each in stored), default=0.0)
    names = sorted({each.name for each in stored if each.last_wanted == newest})
    return [] if content_to_remove(stored, names, keep) else names


@dataclass(frozen=True)
class ContentDirectories:
    """The releases, programs and environments in `install_directory`, each in the folder of its kind.

    `run_directory` has the environment and settings files of the tasks' last runs. `processes` is /proc.
    """

    install_directory: Path
    run_directory: Path
    processes: Path = Path("/proc")

    def stored(self) -> list[StoredContent]:
        """Return all releases, programs and environments, also incomplete ones.

        Raises OSError, and ValueError if users other than root can change one of the folders.
        """
        return [
            StoredContent(kind, name, moment, self._is_in_use(kind, name))
            for kind in KINDS
            for name, moment in self._own_directories(kind).items()
        ]

    def mark_wanted(self, wanted: Collection[str]) -> None:
        """Set `last_wanted` of the content with these names to now: the modification time of its directory.

        Names that do not exist are ignored. Raises OSError and ValueError.
        """
        now = time.time_ns()
        for kind in KINDS:
            for name in {*self._own_directories(kind)} & {*wanted}:
                with opened(self.install_directory / kind) as folder:
                    os.utime(name, ns=(now, now), dir_fd=folder, follow_symlinks=False)

    def _own_directories(self, kind: str) -> dict[str, float]:
        """Return {name: modification time in Unix seconds} of psfleet's directories of a kind.

        Incomplete ones are in it, too. Return {} if there is no folder of the kind. Raises OSError, and
        ValueError if users other than root can change the folder.
        """
        statuses = {}
        with suppress(FileNotFoundError), opened(self.install_directory / kind) as folder:
            if not is_ours_alone(folder):
                raise ValueError(f"{self.install_directory / kind} can be changed by others than root")
            statuses = directories_in(folder)
        ours = (0, os.geteuid())
        return {
            name: status.st_mtime
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
    """Rename a directory to .partial-<name>, then remove it with its content. Raises OSError and ValueError.

    So a directory without this prefix is never incomplete.
    """
    aside = path if path.name.startswith(PARTIAL) else path.with_name(f"{PARTIAL}{path.name}")
    if aside != path:
        with opened(path.parent) as folder:
            os.rename(path.name, aside.name, src_dir_fd=folder, dst_dir_fd=folder)
    remove_tree(aside)
