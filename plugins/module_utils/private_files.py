"""Files of users on a host that only root and one group may read."""

from __future__ import annotations

import grp
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o640, 0o750


def group_number(name: str, *, check_mode: bool) -> int:
    """Return the gid of the group `name`.

    If there is no such group, raise ValueError; in check mode return -1, as a deployment would create it.
    """
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        if check_mode:
            return -1
        raise ValueError(f"this host has no group {name}; expected the group of the tasks' user") from None


def is_private(status: os.stat_result, group: int) -> bool:
    """Return whether a file or folder belongs to this user and the group, and others have no rights to it.

    The group may only read it (and enter or execute it). `status` is the file's, `group` is a gid.
    """
    ours = (status.st_uid, status.st_gid) == (os.geteuid(), group)
    return ours and not status.st_mode & 0o7777 & ~FOLDER_MODE


def make_private(descriptor: int, group: int) -> None:
    """Make an open file or folder private to the group with the gid `group` (`is_private`).

    A folder or an executable file gets the mode 0750, any other file 0640.
    """
    mode = os.fstat(descriptor).st_mode
    os.fchown(descriptor, os.geteuid(), group)
    os.fchmod(descriptor, FOLDER_MODE if mode & 0o100 else FILE_MODE)


def make_paths_private(paths: Iterable[Path], group: int) -> None:
    """Make files and folders private (`is_private`), in this order. They lie in folders that root owns.

    Links are not followed: a link raises OSError.
    """
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            make_private(descriptor, group)
        finally:
            os.close(descriptor)


@contextmanager
def private_to(group: int) -> Iterator[None]:
    """During the block, new files and folders belong to the group with the gid `group`.

    Others than the owner and the group have no rights to them. With -1 it is the process's own group.
    """
    mask, own = os.umask(0o027), os.getegid()
    try:
        if group != -1:
            os.setegid(group)
        yield
    finally:
        os.setegid(own)
        os.umask(mask)
