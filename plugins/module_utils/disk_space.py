"""Compares the free disk space of a host with what a step needs, before the step begins."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .host.wording import readable

# The least free bytes with which a run can write its files.
LEAST_ROOM = 1_000_000


def existing_parent(path: Path) -> Path:
    """Return `path` if it is an existing directory, else its nearest existing parent."""
    while not path.is_dir():
        path = path.parent
    return path


def login_home() -> Path:
    """Return the home of the user as which Ansible logged in; its nearest existing parent if it is missing.

    Ansible copies files there first.
    """
    return existing_parent(Path(pwd.getpwuid(login_user()).pw_dir))


def login_user() -> int:
    """Return the uid of the user who logged in, even if Ansible has become root since.

    It is the owner of this process, or of its nearest parent process that is not root's; 0 if all are root's.
    sudo, su and doas leave different variables in the environment, but all of them leave this process.
    """
    process, user = os.getpid(), os.getuid()
    while process > 1 and not user:
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace")
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        process, user = int(fields["PPid"]), int(fields["Uid"].split()[0])
    return user


def lacking_space(*needed: tuple[Path, int]) -> str:
    """Return, in words, where fewer bytes are free than are needed; "" if there is enough everywhere.

    `needed` are (path, bytes); the paths need not exist yet. The bytes of paths on the same file system are
    added up, and the text names the first of these paths.

    Example of a result: "/opt has 1.0 GB free, 2.0 GB are needed"
    """
    together: dict[int, tuple[Path, int]] = {}
    for path, size in ((path, size) for path, size in needed if size):
        here = existing_parent(path)
        first, sum_so_far = together.get(here.stat().st_dev, (here, 0))
        together[here.stat().st_dev] = (first, sum_so_far + size)
    return "; ".join(
        f"{path} has {readable(free)} free, {readable(size)} are needed"
        for path, size in together.values()
        if (free := shutil.disk_usage(path).free) < size
    )


def freeable_bytes(*folders: Path) -> int:
    """Return the bytes of disk space that removing all these folders together would free; 0 for missing ones.

    A file with another hard link outside of the folders frees nothing; environments may share files.
    """
    names: Counter[tuple[int, int]] = Counter()
    statuses = {}
    for status in _statuses_below(*folders):
        names[status.st_dev, status.st_ino] += 1
        statuses[status.st_dev, status.st_ino] = status
    return sum(
        status.st_blocks * 512
        for key, status in statuses.items()
        if stat.S_ISDIR(status.st_mode) or names[key] >= status.st_nlink
    )


def _statuses_below(*folders: Path) -> Iterator[os.stat_result]:
    for folder in folders:
        for parent, _, files in os.walk(folder):
            for name in (".", *files):
                with suppress(FileNotFoundError):  # another process may change the folder meanwhile
                    yield os.lstat(os.path.join(parent, name))  # noqa: PTH118 - a Path takes much longer
