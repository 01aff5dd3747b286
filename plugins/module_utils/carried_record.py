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

from .host.safe_directory import opened, remove, status_of

# The name of an incomplete file, at the root of the directory.
PARTIAL = ".psfleet-partial"


class RecordedFile(NamedTuple):
    """A file in the record: its size in bytes, its time in nanoseconds, its SHA-256 in hexadecimal.

    `carried` says whether psfleet copied it to the host; if not, it was there before.
    """

    size: int
    mtime_ns: int
    sha256: str
    carried: bool

    def is_unchanged(self, status: os.stat_result | None) -> bool:
        """Return whether the file is still a regular file with the recorded size and time; None gives False.

        `status` is the file's present status, None if there is no file. The content is not read.
        """
        return (
            status is not None
            and stat.S_ISREG(status.st_mode)
            and (status.st_size, status.st_mtime_ns) == (self.size, self.mtime_ns)
        )


class CarriedRecord:
    """The record of the files that were carried into a `directory` of this host.

    It is a JSON file in the folder `records`, named by a hash of the directory's path. `files` is {path below
    the directory: file}, {} without a record. `fulfilled` is the SHA-256 of the manifest that the directory
    fulfilled last, "" for none.
    """

    def __init__(self, directory: Path, records: Path) -> None:
        self.directory = directory
        self.path = records / f"{hashlib.sha256(bytes(directory)).hexdigest()[:16]}.json"
        content: dict[str, Any] = {"digest": "", "files": {}}
        with suppress(FileNotFoundError):
            content = json.loads(self.path.read_text(encoding="utf-8"))
        self.fulfilled = content["digest"]
        self.files = {name: RecordedFile(*known) for name, known in content["files"].items()}

    def remove_carried(self, names: Iterable[str]) -> list[str]:
        """Remove the files in `names` that psfleet carried and that are unchanged; return the removed names.

        All `names` leave `files`, also those of files that stay; a name that is not in `files` raises
        KeyError. The JSON file itself is written later, by `CarriedFiles.finish`.
        """
        removed = []
        with self._root() as root:
            for name in names:
                known = self.files.pop(name)
                if root is not None and known.carried and known.is_unchanged(status_of(root, name)):
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
