"""Unpacks a packed run (manifest.py's `pack`) from any source safely, into a folder of its own."""

import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

# A run of a thousand tasks has about ten thousand files; each takes memory, and so does its header.
MOST_FILES, MOST_OF_A_HEADER = 200_000, 64_000
# Share of the free space where it is unpacked, which may be memory.
_MOST_OF_THE_FREE = 0.5
_PIECE = 1 << 20


class _Header(tarfile.TarInfo):
    def _proc_member(self, archive: tarfile.TarFile) -> Any:  # noqa: ANN401 - tarfile's own
        """Refuse a header that would take unlimited memory."""
        if self.type not in tarfile.REGULAR_TYPES and self.size > MOST_OF_A_HEADER:
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        return super()._proc_member(archive)  # type: ignore[misc]


@contextmanager
def unpacked(file: Path) -> Iterator[Path]:
    """Yield the folder of the run in a .tar.gz, unpacked for the duration of the context.

    The archive may only contain plain files of one folder. Raises OSError, and ValueError naming anything
    else in it.
    """
    with tempfile.TemporaryDirectory(prefix="psfleet-run-") as place:
        try:
            with tarfile.open(file, "r|gz", tarinfo=_Header) as archive:
                names = _take(archive, Path(place))
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise ValueError(f"it is not a complete .tar.gz ({error})") from error
        if len(names) != 1:
            raise ValueError(f"it holds {len(names)} folders, expected that of one run")
        yield Path(place) / names.pop()


def _take(archive: tarfile.TarFile, place: Path) -> set[str]:
    """Write the archive's files below `place`, and return the names of the top folders."""
    folders: set[str] = set()
    left = _MOST_OF_THE_FREE * shutil.disk_usage(place).free
    for count, entry in enumerate(archive, start=1):
        if count > MOST_FILES:
            raise ValueError(f"it has more than {MOST_FILES:,} files")
        if entry.isdir():
            continue
        parts = PurePosixPath(entry.name).parts
        plain = entry.type in {tarfile.REGTYPE, tarfile.AREGTYPE} and entry.sparse is None
        if not plain or len(parts) < 2 or ".." in parts or parts[0] in {"/", "."} or "\0" in entry.name:
            raise ValueError(f"it holds {entry.name[:80]!r}, which is not a plain file of a run's folder")
        left -= entry.size
        if left < 0:
            raise ValueError(f"{place.parent} has no space for it: unpack it elsewhere, and name the folder")
        target = place.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(entry)
        if content is None:
            raise ValueError(f"{entry.name[:80]!r} has no content")
        with target.open("xb") as taken:
            shutil.copyfileobj(content, taken, _PIECE)
        folders.add(parts[0])
    return folders
