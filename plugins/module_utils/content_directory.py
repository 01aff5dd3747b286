"""Directories that are named by the hash of their content, and links to the directory that is in use.

The controller packs such directories, and hosts unpack them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .host.whole_files import BLOCK_BYTES, add_content

HASH_DIGITS = 12
# These files are not part of a program's content: byte code; files whose names begin with a dot, such as
# .git; and the lock of the program's requirements, which a deployment writes after it has computed the
# program's hash.
BYTE_CODE = "__pycache__"
LOCK_SUFFIX = ".psfleet.lock"


def files_below(root: Path, *, hidden: bool = True) -> dict[str, Path]:
    """Return {path relative to `root`, with "/": path} of the regular files below `root`, sorted.

    If `root` is a file, the result has only this file, under its own name. A link to a file counts as the
    file. Without `hidden`, byte code, psfleet's locks and names that begin with a dot are left out.

    Raises ValueError for a link to a folder and for a name that is not UTF-8, because neither can be carried,
    and OSError if `root` is missing or a folder cannot be read.
    """
    if root.is_file():
        return {root.name: root}
    found: dict[str, Path] = {}
    for parent, folders, names in os.walk(root, onerror=_raise):
        folders[:] = [name for name in folders if hidden or not _is_hidden(name)]
        for name in folders:
            if Path(parent, name).is_symlink():
                raise ValueError(f"{Path(parent, name)} is a link to a folder: put the folder itself there")
        for name in names:
            path = Path(parent, name)
            if path.is_file() and (hidden or not _is_hidden(name)):
                found[_utf8(path.relative_to(root).as_posix())] = path
    return dict(sorted(found.items()))


def _raise(error: OSError) -> None:
    raise error


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == BYTE_CODE or name.endswith(LOCK_SUFFIX)


def _utf8(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the name of {name!r} is not UTF-8: rename the file") from None
    return name


def content_files(root: Path) -> dict[str, Path]:
    """Return {path relative to `root`: path} of the files of a program's content, sorted.

    Byte code, psfleet's locks and names that begin with a dot are left out. `root` is a file or a folder; the
    errors are those of `files_below`.
    """
    return files_below(root, hidden=False)


def content_hash(root: Path) -> str:
    """Return the first 12 hex digits of the SHA-256 over the paths and bytes of `content_files(root)`.

    A file has the same hash as a folder with only this file.
    """
    digest = hashlib.sha256()
    for name, path in content_files(root).items():
        digest.update(f"{name}\0{path.stat().st_size}\0".encode())
        add_content(digest, path)
    return digest.hexdigest()[:HASH_DIGITS]


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the files of a tar archive below `folder`: owned by the caller, readable by all users.

    Raises ValueError if the archive has anything but regular files below its own root; the files before it
    are unpacked then.
    """
    # Debian 12 has Python 3.11.2, which has no extraction filters yet.
    with tarfile.open(archive) as stream:
        for member in stream:
            parts = Path(member.name).parts
            content = stream.extractfile(member) if member.isfile() else None
            if content is None or ".." in parts or Path(member.name).is_absolute():
                raise ValueError(f"{archive} holds {member.name}, which is no file below its root")
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as out:
                shutil.copyfileobj(content, out, BLOCK_BYTES)
            target.chmod(0o755 if member.mode & 0o100 else 0o644)


def points_to(link: Path, target: str) -> bool:
    """Return whether `link` is a symbolic link with exactly the text `target`; False if it does not exist."""
    return link.is_symlink() and str(link.readlink()) == target


def point(link: Path, target: str) -> None:
    """Make or replace the symbolic link `link`, with the text `target`. A replaced link exists at any time.

    Raises ValueError if something other than a link is in its place.
    """
    if link.exists() and not link.is_symlink():
        raise ValueError(f"{link} is not a symbolic link; move it away")
    # A directory of its own, because a link cannot be made under a name that mkstemp has reserved.
    with tempfile.TemporaryDirectory(prefix=f".{link.name}.", dir=link.parent) as directory:
        fresh = Path(directory) / link.name
        fresh.symlink_to(target)
        fresh.replace(link)


@contextmanager
def locked(path: Path, timeout_seconds: float) -> Iterator[None]:
    """Hold the lock file `path` during the block; make the file if it is missing.

    Wait for another process that holds it; raise TimeoutError after `timeout_seconds`. If this process is
    killed, the lock ends, too.
    """
    deadline = time.monotonic() + timeout_seconds
    with path.open("a", encoding="utf-8") as stream:
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path} has been locked for {timeout_seconds:.0f} s") from None
                time.sleep(0.5)
        yield


def sync_directory(path: Path) -> None:
    """Flush a directory's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
