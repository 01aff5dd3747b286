"""Lock files: packages pinned to a version, each with the hashes of the permitted wheels."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

PINNED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class PinnedPackage:
    """A package of a lock. `hashes` are the SHA-256 of its permitted wheels, as hex digits.

    `name` is written as in the lock, so it may not be normalized.
    """

    name: str
    version: str
    hashes: frozenset[str]


def read_lock(text: str) -> dict[str, PinnedPackage]:
    """Return {normalized name: package} of a lock; if it pins a package twice, the last line counts.

    Lines that do not begin with "name==version" are ignored.
    """
    pinned = [
        PinnedPackage(match["name"], match["version"], frozenset(HASH.findall(block)))
        for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)
        if (match := PINNED.match(block))
    ]
    return {canonicalize_name(package.name): package for package in pinned}


def without_comments(lock: Path) -> str:
    """Return the text of a lock without the lines that start with "#"; indented comments stay.

    Raises OSError if there is no such file.
    """
    lines = lock.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#"))


def read_locks(paths: Iterable[Path]) -> dict[str, PinnedPackage]:
    """Return {normalized name: package} of several locks; if two pin a package, the last lock counts."""
    return read_lock("\n".join(path.read_text(encoding="utf-8") for path in paths))


def lock_text(packages: Iterable[PinnedPackage]) -> str:
    """Return the text of a lock of these packages, sorted by name, in the format of pip and uv.

    Return "" without packages.
    """
    lines = []
    for package in sorted(packages, key=lambda package: canonicalize_name(package.name)):
        hashes = [f"    --hash=sha256:{digest}" for digest in sorted(package.hashes)]
        lines.append(" \\\n".join([f"{package.name}=={package.version}", *hashes]))
    return "".join(f"{line}\n" for line in lines)
