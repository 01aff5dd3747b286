"""What is known on a host of the files that were carried into one of its directories."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from .host.safe_directory import find, opened, remove

# A file that is not whole yet, at the root of the directory.
PARTIAL = ".psfleet-partial"


class Known(NamedTuple):
    """A file as the record has it; one that was not carried was there before."""

    size: int
    mtime_ns: int
    sha256: str
    carried: bool

    def is_still(self, found: os.stat_result | None) -> bool:
        """Tell whether a file is as it was when its SHA-256 was taken."""
        return (
            found is not None
            and stat.S_ISREG(found.st_mode)
            and (found.st_size, found.st_mtime_ns) == (self.size, self.mtime_ns)
        )


class CarriedRecord:
    """A directory of this host and the record of what is `known` of its files, which its path names.

    `fulfilled` is the digest of the manifest when the record was written, "" of none.
    """

    def __init__(self, directory: Path, records: Path) -> None:
        self.directory = directory
        self.path = records / f"{hashlib.sha256(bytes(directory)).hexdigest()[:16]}.json"
        content: dict[str, Any] = {"digest": "", "files": {}}
        with suppress(FileNotFoundError):
            content = json.loads(self.path.read_text(encoding="utf-8"))
        self.fulfilled = content["digest"]
        self.known = {name: Known(*known) for name, known in content["files"].items()}

    def leave(self, names: Iterable[str]) -> list[str]:
        """Remove what was carried and is still as it was; forget the others. Return what was removed."""
        removed = []
        with self._root() as root:
            for name in names:
                known = self.known.pop(name)
                if root is not None and known.carried and known.is_still(find(root, name)):
                    remove(root, name)
                    removed.append(name)
        return removed

    @contextmanager
    def _root(self) -> Iterator[int | None]:
        """Give a descriptor of the directory, None where it is not there yet."""
        try:
            with opened(self.directory) as root:
                yield root
        except FileNotFoundError:
            yield None
