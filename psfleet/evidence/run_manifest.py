"""The file manifest.json of a run's folder: the hash of every file that a verdict rests on.

It is written when a run is collected, so that a later judge sees whether the folder still has the files that
came from the hosts. It is no signature: nobody notices if a file and the manifest are changed together.
"""

import gzip
import hashlib
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from psfleet.carry.earlier_files import lives
from psfleet.evidence.answer import Findings, Good, counted
from psfleet.evidence.card import Card, Group, check
from psfleet.evidence.untrusted_files import read_json, write_whole
from trainer.contract.json_objects import JsonObject
from trainer.contract.json_values import COUNT, TEXT, mapping_of, matching, object_of
from trainer.contract.rules import setting

FILE_NAME = "manifest.json"
VERSION = 1
_FILES = ("plan.json", "settings.json", "tasks.json", "devices.txt")
_FOLDERS = ("events", "logs", "checkpoints", "devices")
# These files show earlier results about the run. They are for readers; the verdict does not read them.
_ALSO_PACKED = (FILE_NAME, "verdict.json", "report.html", "loss.png")
Entry = Mapping[str, Any]
_DIGEST = matching("a hash of 64 hex digits", re.compile(r"[0-9a-f]{64}"))
FILE_ENTRIES = mapping_of(object_of({"sha256": _DIGEST, "bytes": COUNT}))


@dataclass(frozen=True)
class Manifest(JsonObject):
    """{name of a file, relative to the run's folder: its `sha256` and `bytes`}."""

    run_id: str = setting(MISSING, TEXT)
    files: Mapping[str, Entry] = setting(MISSING, FILE_ENTRIES)

    @classmethod
    def of(cls, folder: Path) -> "Manifest":
        """Return the manifest of all files in the folder that a verdict rests on, with their present hashes.

        The folder's name counts as the run's id. Raises OSError.
        """
        return cls(folder.resolve().name, {name: _entry(folder / name) for name in covered_files(folder)})

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Return the manifest in the folder's manifest.json.

        Raises OSError if the file is missing or cannot be read, and ValueError if its content is invalid.
        """
        content = read_json(folder / FILE_NAME)
        if not isinstance(content, dict) or content.get("version") != VERSION:
            raise ValueError(f"it is not an object of version {VERSION}")
        return cls.from_json(content)

    def write(self, folder: Path) -> None:
        """Write manifest.json into the folder atomically. Raises OSError."""
        content = {"version": VERSION, "run_id": self.run_id, "files": dict(sorted(self.files.items()))}
        write_whole(folder / FILE_NAME, f"{json.dumps(content, indent=2)}\n".encode())

    def with_file(self, folder: Path, name: str) -> "Manifest":
        """Return a copy of the manifest with the present hash and size of the file `name`, new or changed.

        Raises OSError if the file cannot be read. Nothing is written.
        """
        return Manifest(self.run_id, {**self.files, name: _entry(folder / name)})

    def holds(self, folder: Path, name: str) -> bool:
        """Return whether the file `name` exists and has the size and hash of the manifest.

        False also for a file that is not in the manifest. Raises OSError if the file cannot be read.
        """
        if name not in self.files or not (folder / name).is_file():
            return False
        of_size = (folder / name).stat().st_size == self.files[name]["bytes"]
        return of_size and _entry(folder / name).items() <= self.files[name].items()


def covered_files(folder: Path) -> Iterator[str]:
    """Yield the names of the files that a verdict rests on, relative to the folder; manifest.json is none.

    Files of earlier collections (`earlier/`) are included; links and hidden files are left out.
    """
    for name in _FILES:
        if is_plain(folder / name):
            yield name
    for place in (life for name in _FOLDERS for life in lives(folder, name)):
        # A link to a folder would add files from elsewhere.
        inside = place.is_dir() and not place.is_symlink()
        for path in sorted(place.rglob("*")) if inside else ():
            if is_plain(path):
                yield path.relative_to(folder).as_posix()


@check(
    Card(
        Group.FILES,
        holds="every file that the verdict reads is as it was collected",
        fails="a file was changed or added; the manifest is of another run",
        unknown="a file is gone; the manifest cannot be read",
        advice=(
            "Files differ from what the manifest says. Copy the folder again from where the run was "
            "collected, or find out who changed it."
        ),
        models="with a `manifest.json`",
        programs="with a `manifest.json`",
    )
)
def files_unchanged(findings: Findings, folder: Path, run_id: str) -> Good:
    """Check that every file that the verdict rests on is as it was collected, and that none was added.

    A missing file is missing evidence. Figures: the number of `files` in the manifest, and their `bytes`; {}
    if the manifest cannot be read.
    """
    try:
        manifest = Manifest.read(folder)
    except (OSError, ValueError) as error:
        findings.lacking.append(f"{FILE_NAME}: {getattr(error, 'strerror', None) or error}")
        return "", {}
    there = set(covered_files(folder))
    if manifest.run_id != run_id:
        findings.wrong.append(f"{FILE_NAME} is of run {manifest.run_id!r}, the records are of {run_id!r}")
    findings.wrong += [f"{name} was added" for name in sorted(there - manifest.files.keys())]
    # A missing file does not contradict the run; its content is missing evidence.
    findings.lacking += [f"{name} is gone" for name in sorted(manifest.files.keys() - there)]
    for name in sorted(there & manifest.files.keys()):
        try:
            if not manifest.holds(folder, name):
                findings.wrong.append(f"{name} was changed after it was collected")
        except OSError as error:  # noqa: PERF203 - other files still count
            findings.lacking.append(f"{name}: {error.strerror}")
    size, count = sum(entry["bytes"] for entry in manifest.files.values()), len(manifest.files)
    good = f"{counted(count, 'file')} of {size:,} bytes are as they were collected"
    return good, {"files": count, "bytes": size}


def _entry(path: Path) -> Entry:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"sha256": digest, "bytes": os.fstat(file.fileno()).st_size}


def is_plain(path: Path) -> bool:
    """Return whether `path` is an existing regular file that is neither a link nor hidden."""
    return not path.name.startswith(".") and path.is_file() and not path.is_symlink()


def pack(folder: Path, target: Path) -> list[str]:
    """Pack the files that a verdict on the folder rests on into the .tar.gz `target`; return their names.

    manifest.json, verdict.json, report.html and loss.png are packed, too, if they exist. The names are
    relative to `folder` and sorted; in the archive, they lie in a folder of the same name as `folder`. The
    same files give the same bytes: times, owners and modes are fixed. Raises FileExistsError if the target
    exists, and OSError; a partial target is removed.
    """
    names = sorted([*covered_files(folder), *(name for name in _ALSO_PACKED if is_plain(folder / name))])
    with target.open("xb") as file:
        try:
            with (
                gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
            ):
                for name in names:
                    entry = tarfile.TarInfo(f"{folder.resolve().name}/{name}")
                    with (folder / name).open("rb") as content:
                        entry.size, entry.mode = os.fstat(content.fileno()).st_size, 0o644
                        archive.addfile(entry, content)
        except BaseException:
            target.unlink()
            raise
    return names
