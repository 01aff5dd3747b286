"""Files of users on a host that only root and one group may read."""

from __future__ import annotations

import grp
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o640, 0o750


def group_number(name: str, *, check_mode: bool) -> int:
    """Return the number of a group; -1 in check mode if it does not exist: a deployment would create it.

    Raises ValueError for an unknown group.
    """
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        if check_mode:
            return -1
        raise ValueError(f"this host has no group {name}; expected the group of the tasks' user") from None


def is_private(found: os.stat_result, group: int) -> bool:
    """Return whether only root and this group may read a file or folder, and only root may change it."""
    ours = (found.st_uid, found.st_gid) == (os.geteuid(), group)
    return ours and not found.st_mode & 0o7777 & ~FOLDER_MODE


def make_private(descriptor: int, group: int) -> None:
    """Give an open file or folder to root and the group. A file that was executable stays executable."""
    mode = os.fstat(descriptor).st_mode
    os.fchown(descriptor, os.geteuid(), group)
    os.fchmod(descriptor, FOLDER_MODE if mode & 0o100 else FILE_MODE)


def hide(paths: Iterable[Path], group: int) -> None:
    """Make files and folders private to the group, in this order; they lie in folders that root owns."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            make_private(descriptor, group)
        finally:
            os.close(descriptor)


@contextmanager
def made_for(group: int) -> Iterator[None]:
    """Give all files and folders that are made in the block to the group; nobody else may read them."""
    mask, own = os.umask(0o027), os.getegid()
    try:
        if group != -1:
            os.setegid(group)
        yield
    finally:
        os.setegid(own)
        os.umask(mask)
