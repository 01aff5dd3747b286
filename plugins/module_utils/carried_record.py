"""The record, on a host, of the files that were carried into one of the host's directories."""

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

# The name of an incomplete file, at the root of the directory.
PARTIAL = ".psfleet-partial"


class RecordedFile(NamedTuple):
    """A file in the record. If it was not `carried`, it was there before."""

    size: int
    mtime_ns: int
    sha256: str
    carried: bool

    def is_still(self, found: os.stat_result | None) -> bool:
        """Return whether a file is as it was when its SHA-256 was computed.

        `found` is None if there is no file.
        """
        return (
            found is not None
            and stat.S_ISREG(found.st_mode)
            and (found.st_size, found.st_mtime_ns) == (self.size, self.mtime_ns)
        )


class CarriedRecord:
    """A directory of this host, and the record of its `files`, {name: file}, in `records`.

    The record's name is a hash of the directory's path. `fulfilled` is the digest of the manifest that the
    directory fulfilled last, "" for none.
    """

    def __init__(self, directory: Path, records: Path) -> None:
        self.directory = directory
        self.path = records / f"{hashlib.sha256(bytes(directory)).hexdigest()[:16]}.json"
        content: dict[str, Any] = {"digest": "", "files": {}}
        with suppress(FileNotFoundError):
            content = json.loads(self.path.read_text(encoding="utf-8"))
        self.fulfilled = content["digest"]
        self.files = {name: RecordedFile(*known) for name, known in content["files"].items()}

    def leave(self, names: Iterable[str]) -> list[str]:
        """Remove the named files that were carried and are unchanged; return the names of the removed files.

        The record forgets all `names`.
        """
        removed = []
        with self._root() as root:
            for name in names:
                known = self.files.pop(name)
                if root is not None and known.carried and known.is_still(find(root, name)):
                    remove(root, name)
                    removed.append(name)
        return removed

    @contextmanager
    def _root(self) -> Iterator[int | None]:
        """Yield a file descriptor of the directory; None if it does not exist yet."""
        try:
            with opened(self.directory) as root:
                yield root
        except FileNotFoundError:
            yield None
