"""Checks that only the user and root can change the controller's cache, because hosts install its files."""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# The folders of the cache from which hosts get files.
HOST_FOLDERS = ("wheels", "locks")


def own_cache(directory: str) -> Path:
    """Return the absolute path of a cache, with links resolved and "~" replaced; it need not exist.

    Raises ValueError if another user than this user and root can change what hosts get from the cache.
    """
    cache = Path(directory).expanduser().resolve()
    for path, is_above in _levels(cache):
        with suppress(FileNotFoundError):
            found = path.lstat()
            if others_write(found, is_above=is_above):
                raise ValueError(_refusal(path, found, cache))
    return cache


def _levels(cache: Path) -> Iterator[tuple[Path, bool]]:
    """Yield (path to check, whether it lies above the cache, or above the target of a link in the cache).

    The paths are the cache, HOST_FOLDERS in it, everything below these, and all folders above them.
    """
    for place in (cache, *(cache / name for name in HOST_FOLDERS)):
        there = place.resolve()
        yield from ((parent, True) for parent in there.parents)
        yield there, False
        if place != cache:
            yield from ((path, False) for path in _below(there) if not path.is_symlink())


def _below(folder: Path) -> Iterator[Path]:
    """Yield the paths below a folder, even while it changes.

    A private folder, which only its owner may enter, is yielded, but not what is below it.
    """
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))
        folders[:] = [name for name in folders if not _is_private(Path(parent, name))]


def _is_private(directory: Path) -> bool:
    with suppress(FileNotFoundError):
        return not directory.lstat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return True


def others_write(found: os.stat_result, *, is_above: bool) -> bool:
    """Return whether users other than this user and root can change a file, or the content of a directory.

    True also if the file belongs to another user. With `is_above`, it is a directory above the cache; it is
    safe if users can only remove their own files there, as in /tmp. This user's private group counts as this
    user.
    """
    if found.st_uid not in (0, os.geteuid()):
        return True
    writers = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if found.st_gid == _own_group():
        writers &= ~stat.S_IWGRP
    return bool(writers) and not (is_above and found.st_mode & stat.S_ISVTX)


def _own_group() -> int | None:
    """Return the id of this user's private group: it has the user's name and no other member.

    Return None if the user's main group is none of this kind.
    """
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
        f"{path} has mode {stat.S_IMODE(found.st_mode):04o} and is {owner}'s: users other than you and root "
        f"can change what hosts get from the cache {cache}. If it is yours and nobody has changed anything: "
        f"chmod go-w {path}. Otherwise name another cache: PSFLEET_CACHE"
    )
