"""What is carried into a directory of a host: the manifest of what is wanted, the record of what is there."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Wanted:
    """A file as the manifest has it."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Known:
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


@dataclass
class Record:
    """What is known of the files in a directory; `digest` is that of the manifest that is fulfilled."""

    digest: str = ""
    files: dict[str, Known] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Record:
        """Return the record; an empty one where there is none."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls()
        return cls(content["digest"], {name: Known(*known) for name, known in content["files"].items()})

    def write(self, path: Path) -> None:
        """Write the record in one step, after what it says is on the disk."""
        os.sync()
        path.parent.mkdir(parents=True, exist_ok=True)
        files = {
            name: [known.size, known.mtime_ns, known.sha256, known.carried]
            for name, known in self.files.items()
        }
        fresh = path.with_suffix(".partial")
        fresh.write_text(json.dumps({"digest": self.digest, "files": files}), encoding="utf-8")
        fresh.replace(path)


def read_manifest(path: Path, digest: str) -> dict[str, Wanted]:
    """Return the files of a manifest in its order. Raises ValueError where it is another manifest."""
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise ValueError(f"the manifest was damaged on its way: sha256 is {found}, expected {digest}")
    return {name: Wanted(*wanted) for name, wanted in json.loads(content).items()}
