"""The cache on the controller: what lies in it is installed on every host, so nobody else may write there."""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# What hosts are given as it lies there.
GIVEN = ("wheels", "locks")


def own_cache(directory: str) -> Path:
    """Return the path of a cache, as a user gives it, without links.

    Raises ValueError where others than this user and root can change what lies in it.
    """
    cache = Path(directory).expanduser().resolve()
    for path, is_above in _levels(cache):
        with suppress(FileNotFoundError):
            found = path.lstat()
            if others_write(found, is_above=is_above):
                raise ValueError(_refusal(path, found, cache))
    return cache


def _levels(cache: Path) -> Iterator[tuple[Path, bool]]:
    """Yield what is to be looked at, and whether it is above the cache, or above what is linked into it."""
    for place in (cache, *(cache / name for name in GIVEN)):
        there = place.resolve()
        yield from ((parent, True) for parent in there.parents)
        yield there, False
        if place != cache:
            yield from ((path, False) for path in _below(there) if not path.is_symlink())


def _below(folder: Path) -> Iterator[Path]:
    """Yield what lies there, even while others add to it; nothing of what nobody else can enter."""
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))
        folders[:] = [name for name in folders if not _is_private(Path(parent, name))]


def _is_private(directory: Path) -> bool:
    with suppress(FileNotFoundError):
        return not directory.lstat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return True


def others_write(found: os.stat_result, *, is_above: bool) -> bool:
    """Tell whether others than this user and root can change a file, or what lies in a directory.

    Above a cache, a directory in which each can remove his own alone is no danger, such as /tmp.
    """
    if found.st_uid not in (0, os.geteuid()):
        return True
    writers = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if found.st_gid == _own_group():
        writers &= ~stat.S_IWGRP
    return bool(writers) and not (is_above and found.st_mode & stat.S_ISVTX)


def _own_group() -> int | None:
    """Return the group that has this user's name and no other member, as most systems give one to each."""
    with suppress(KeyError):
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(user.pw_gid)
        if group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}:
            return group.gr_gid
    return None


def _refusal(path: Path, found: os.stat_result, cache: Path) -> str:
    try:
        owner = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        owner = str(found.st_uid)
    return (
        f"{path} has mode {stat.S_IMODE(found.st_mode):04o} and is {owner}'s: others than you and root can "
        f"change what hosts are given from the cache {cache}. If nobody has, and it is yours: "
        f"chmod go-w {path}. Otherwise name another cache: PSFLEET_CACHE"
    )
