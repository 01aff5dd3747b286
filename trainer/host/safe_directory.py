"""Safe work as root in directories whose parents other users may own: their links are not followed."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path, PurePosixPath

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def parts_of(name: str) -> tuple[str, ...]:
    """Return the parts of a relative path: ("a", "b") for "a/b".

    Raises ValueError if the path is empty, is absolute, or has ".." or a null byte.
    """
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise ValueError(f"{name!r} is no path below a directory")
    return parts


def opened(path: Path, *, make: bool = False) -> AbstractContextManager[int]:
    """Return a context with a descriptor of the directory at the absolute `path`.

    A link in the path is followed only if no user other than root (or this one) could have put it there.
    Raises ValueError for any other link or a file, and OSError if a directory is missing; `make` creates it.
    """
    return _reached(os.open("/", DIRECTORY), path.parts[1:], path, is_ours_alone, make=make)


def opened_below(root: int, parts: Sequence[str], *, make: bool = False) -> AbstractContextManager[int]:
    """Return a context with a descriptor of a directory below `root`, a descriptor; for no parts, of `root`.

    `parts` are the names on the way from `root`. Raises ValueError for a link or a file among them, and
    OSError if a directory is missing; `make` creates it.
    """
    return _reached(os.dup(root), parts, Path(*parts), lambda _: False, make=make)


@contextmanager
def _reached(
    here: int, parts: Sequence[str], path: Path, follows: Callable[[int], bool], *, make: bool
) -> Iterator[int]:
    try:
        for part in parts:
            below = _step(here, part, path, make=make, links=follows(here))
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def _step(here: int, part: str, path: Path, *, make: bool, links: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(part, 0o755, dir_fd=here)
    try:
        return os.open(part, DIRECTORY | (0 if links else os.O_NOFOLLOW), dir_fd=here)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and not links:
            raise ValueError(f"{part} in {path} is not a directory, or a link that is not root's") from error
        raise


def is_ours_alone(directory: int) -> bool:
    """Return whether only root or this user can put a link into the directory (a descriptor).

    True if one of them owns it, and neither its group nor others can write to it.
    """
    status = os.fstat(directory)
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def status_of(root: int, name: str) -> os.stat_result | None:
    """Return the status of the file `name`, a path relative to `root` (a descriptor).

    A link is not followed: its own status is returned. Return None if there is no such file, or if a link or
    a file is in place of a directory on the way. Raises ValueError as `parts_of` does.
    """
    *folder, file = parts_of(name)
    try:
        with opened_below(root, folder) as here:
            return os.stat(file, dir_fd=here, follow_symlinks=False)
    except (FileNotFoundError, ValueError):
        return None


def directories_in(folder: int) -> dict[str, os.stat_result]:
    """Return {name: status} of the directories directly in a directory (a descriptor), without links."""
    statuses = {}
    for name in os.listdir(folder):
        with suppress(FileNotFoundError):  # another process may change the directory meanwhile
            statuses[name] = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return {name: status for name, status in statuses.items() if stat.S_ISDIR(status.st_mode)}


def write(
    folder: int, name: str, content: bytes, mode: int = 0o644, owner: tuple[int, int] = (-1, -1)
) -> None:
    """Write or replace a file atomically: readers get either the old content or the whole new content.

    `folder` is a descriptor of the directory. `owner` is (uid, gid); -1 keeps this process's own. Raises
    OSError, after which the old file is still there.
    """
    fresh = f".{name}.{secrets.token_hex(8)}"
    try:
        handle = os.open(fresh, NEW, 0o600, dir_fd=folder)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fchown(handle, *owner)
            os.fchmod(handle, mode)  # after fchown, which clears set-id bits
            os.fsync(handle)
        os.replace(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=folder)
        raise


def remove(root: int, name: str) -> None:
    """Remove the file `name`, a path relative to `root` (a descriptor), and the parents that become empty.

    `root` itself stays. If `name` is a link, the link is removed. Raises OSError, also if there is no such
    file, and ValueError for a link among the parents or a path out of `root`.
    """
    parts = parts_of(name)
    with opened_below(root, parts[:-1]) as here:
        os.unlink(parts[-1], dir_fd=here)
    for depth in range(len(parts) - 1, 0, -1):
        with opened_below(root, parts[: depth - 1]) as here:
            try:
                os.rmdir(parts[depth - 1], dir_fd=here)
            except OSError:  # the directory has other entries
                return
