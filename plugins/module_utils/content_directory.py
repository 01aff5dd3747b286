"""Directories that are named by their content, and the links that say which one is in use.

Used on the controller, which packs them, and on the hosts, which unpack them.
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

HASH_DIGITS = 12
# What a program leaves beside its source, and what only developers need.
NOT_CONTENT = {"__pycache__", "tests"}
BLOCK_BYTES = 1 << 20


def content_files(root: Path) -> list[Path]:
    """Return the files below `root` that make up its content, relative to it, in a fixed order."""
    files = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return sorted((path for path in files if not NOT_CONTENT & set(path.parts)), key=Path.as_posix)


def content_hash(root: Path) -> str:
    """Return the first 12 hex digits of the SHA-256 over the relative paths and bytes below `root`."""
    digest = hashlib.sha256()
    for path in content_files(root):
        content = (root / path).read_bytes()
        digest.update(f"{path.as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:HASH_DIGITS]


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file of any size, in hex digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def unpack(archive: Path, folder: Path) -> None:
    """Write the files of a tar archive below `folder`, as root's and readable by all.

    Raises ValueError where the archive holds something else than files below its own root.
    """
    # Python 3.11.2, which Debian 12 has, knows no extraction filters yet.
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
    """Tell whether `link` is a symbolic link to exactly `target`."""
    return link.is_symlink() and str(link.readlink()) == target


def point(link: Path, target: str) -> None:
    """Make `link` point to `target` in one step: at no moment is there no link.

    Raises ValueError where something else than a link is in the way.
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
    """Hold the lock file `path`. The lock goes with the process, so a killed one leaves none behind.

    Raises TimeoutError where another process holds it for longer than `timeout_seconds`.
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
    """Write a directory's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
