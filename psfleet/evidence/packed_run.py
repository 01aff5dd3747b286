"""Unpacks a packed run (`pack` of run_manifest.py) from any source safely, into a folder of its own."""

import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from psfleet.carry.untrusted_archive import PIECE, ArchiveError, members

# A run of a thousand tasks has about ten thousand files. Folders count, too.
MOST_FILES, MOST_FOLDERS_DEEP = 50_000, 16
# Share of the free space where it is unpacked, which may be memory.
_MOST_OF_THE_FREE = 0.5


@contextmanager
def unpacked_run(file: Path) -> Iterator[Path]:
    """Unpack a packed run, a .tar.gz, and yield its folder, which is removed at the end of the context.

    The archive may contain only plain files below one folder. Raises ValueError if it contains anything else,
    is damaged, or needs more space than there is. Raises OSError if `file` is missing.
    """
    with tempfile.TemporaryDirectory(prefix="psfleet-run-") as place:
        try:
            names = _extract(file, Path(place))
        except ArchiveError as error:
            raise ValueError(f"it is not a complete .tar.gz ({error})") from error
        if len(names) != 1:
            raise ValueError(f"it holds {len(names)} folders, expected that of one run")
        yield Path(place) / names.pop()


def _extract(file: Path, place: Path) -> set[str]:
    """Write the archive's files below `place`, and return the names of the archive's top folders.

    Folders without files are left out. Raises ValueError for an entry that is no plain file of a run, for too
    many files, and for too little space.
    """
    made: set[Path] = {place}
    allowed_bytes = _MOST_OF_THE_FREE * shutil.disk_usage(place).free
    with file.open("rb") as stream:
        for count, (entry, content) in enumerate(members(stream, MOST_FILES), start=1):
            allowed_bytes -= entry.size
            if allowed_bytes < 0:
                raise ValueError(
                    f"{place.parent} has no space for it: unpack it elsewhere, and name the folder"
                )
            if count + len(made) > MOST_FILES:
                raise ValueError(f"it has more than {MOST_FILES:,} files and folders")
            if entry.isdir():
                continue
            target = place.joinpath(*_plain_parts(entry))
            for folder in reversed(target.parents):
                if folder.is_relative_to(place) and folder not in made:
                    folder.mkdir()
                    made.add(folder)
            with target.open("xb") as unpacked:
                shutil.copyfileobj(content, unpacked, PIECE)
    return {folder.name for folder in made if folder.parent == place}


def _plain_parts(entry: tarfile.TarInfo) -> tuple[str, ...]:
    """Return the parts of the path of a plain file that lies in a folder.

    Raises ValueError for any other entry: a link, a file without a folder, or a path with "..".
    Example: ("run1", "events", "worker0.jsonl")
    """
    parts = PurePosixPath(entry.name).parts
    plain = entry.type in {tarfile.REGTYPE, tarfile.AREGTYPE} and "\0" not in entry.name
    inside = 2 <= len(parts) <= MOST_FOLDERS_DEEP and ".." not in parts and parts[0] not in {"/", "//", "."}
    if not (plain and inside):
        raise ValueError(f"it holds {entry.name[:80]!r}, which is not a plain file of a run's folder")
    return parts
