"""A run's folder in one file, for somebody who verifies it elsewhere."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

from trainer.evidence.manifest import FILE_NAME as MANIFEST
from trainer.evidence.manifest import covered, is_plain
from trainer.evidence.verdict import FILE_NAME as VERDICT

# Beside what the verdict rests on: what was said of it, and for people to look at.
_ALSO = (MANIFEST, VERDICT, "report.html", "loss.png")
_MODE = 0o644


def pack(folder: Path, target: Path) -> list[str]:
    """Write what a verdict on the folder rests on into a .tar.gz, below a folder of the same name.

    Returns the names of the files. The same files give the same bytes: names are sorted, and times, owners
    and modes fixed. Raises FileExistsError where the target is there, and OSError; what was begun is removed.
    """
    names = sorted([*covered(folder), *(name for name in _ALSO if is_plain(folder / name))])
    with target.open("xb") as file:
        try:
            with (
                gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
                tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
            ):
                for name in names:
                    _add(archive, folder / name, f"{folder.resolve().name}/{name}")
        except BaseException:
            target.unlink()
            raise
    return names


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    with path.open("rb") as content:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = path.stat().st_size, _MODE
        archive.addfile(entry, content)
