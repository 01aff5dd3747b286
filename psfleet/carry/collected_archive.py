"""Unpacks the archive of files that a host packed, and trusts nothing in it."""

import errno
import io
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from psfleet.carry.collected_files import Places
from psfleet.carry.untrusted_archive import BYTES_OF_HEADERS, PIECE, ArchiveError, Content, members

# `run_archive` packs at most this many.
MOST_MEMBERS = 10_000
# The most texts from a host that are shown, and the most characters of each.
MOST_SHOWN = 21
LONGEST_SHOWN = 300
# TensorFlow finds the newest checkpoint of a folder by this file.
CHECKPOINT_STATE, MOST_OF_A_STATE = "checkpoint", 1024 * 1024
_PATH_OF_HOST = re.compile(
    rb'^((?:model_checkpoint_path|all_model_checkpoint_paths): ")/[^"\n]*/', re.MULTILINE
)


def most_packed(most_bytes: int) -> int:
    """Return the largest possible size of an archive of files with `most_bytes` in total, in bytes."""
    return most_bytes + most_bytes // 100 + MOST_MEMBERS * BYTES_OF_HEADERS


def unpack(archive: Path, places: Places, most_bytes: int) -> tuple[list[str], list[str]]:
    """Write the archive's files to their places; return their names, and the reasons why others were refused.

    Reads members of at most `most_bytes` in total. Of a damaged archive, the files before the damage count.
    Raises OSError if the run's folder cannot be written.
    """
    names: list[str] = []
    refused: list[str] = []
    with places.taken():
        try:
            _unpack(archive, places, most_bytes, names, refused)
        except (OSError, ArchiveError) as error:
            refused.append(f"everything after the first {len(names)} files: the archive is damaged: {error}")
    return names, refused


def _unpack(archive: Path, places: Places, most_bytes: int, names: list[str], refused: list[str]) -> None:
    with archive.open("rb") as file:
        for number, (member, content) in enumerate(members(file, MOST_MEMBERS)):
            name = repr(member.name[:LONGEST_SHOWN])[:LONGEST_SHOWN]
            most_bytes -= member.size
            if most_bytes < 0:
                refused.append(f"{name} and everything after it: more than was requested of the host")
                return
            if number >= MOST_MEMBERS:
                refused.append(f"{name} and everything after it: more than {MOST_MEMBERS} files")
                return
            try:
                place = places.place(member.name) if member.isfile() or member.islnk() else None
                if place is None:
                    why = places.refusal(member.name) if member.isfile() else "it is no file"
                    refused.append(f"{name}: {why}")
                    continue
                if member.islnk():
                    _link(place, member.linkname, places, names)
                else:
                    _write(place, _on_the_controller(content, member.size, place))
            except (NotADirectoryError, IsADirectoryError, FileExistsError) as error:
                refused.append(f"{name}: {error.strerror}, of another host")
            except OSError as error:
                refused.append(f"{name}: {error.strerror or error}")
            else:
                names.append(member.name)


def relative_state(state: bytes) -> bytes:
    """Return the content of a `checkpoint` file with relative paths: on the host they may be absolute.

    With absolute paths, TensorFlow would find nothing on the controller, or a file of someone else.
    """
    return _PATH_OF_HOST.sub(rb"\1", state)


def _on_the_controller(content: Content, size: int, place: Path) -> Content:
    if place.name == CHECKPOINT_STATE and size <= MOST_OF_A_STATE:
        return io.BytesIO(relative_state(content.read()))
    return content


def _link(place: Path, twin: str, places: Places, names: Collection[str]) -> None:
    """Give a file that the archive had before another name. Raises OSError.

    No link leads to anything else, and none is copied instead: a host could fill the disk with few bytes.
    """
    there = places.place(twin) if twin in names else None
    if there is None:
        what = f"a link to {twin[:LONGEST_SHOWN]!r}, which is no earlier file of the archive"
        raise OSError(errno.EINVAL, what)
    with _replaced(place) as fresh:
        fresh.hardlink_to(there)


def _write(place: Path, content: Content) -> None:
    with _replaced(place) as fresh, fresh.open("wb") as out:
        shutil.copyfileobj(content, out, PIECE)


@contextmanager
def _replaced(place: Path) -> Iterator[Path]:
    """Yield a path for a file that then takes this place, completely or not at all.

    Someone may be judging an earlier copy right now.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    # A new directory, because the name of the file may already have the greatest possible length.
    with tempfile.TemporaryDirectory(prefix=".", dir=place.parent) as directory:
        fresh = Path(directory) / ".new"  # a hidden file appears in no manifest
        yield fresh
        fresh.replace(place)


def shown(texts: Iterable[object]) -> list[str]:
    """Return the first texts of a host as printable lines of bounded length, and the number of others."""
    entries = [str(text) for text in texts]
    lines = [repr(entry[:LONGEST_SHOWN])[1:-1][:LONGEST_SHOWN] for entry in entries[:MOST_SHOWN]]
    more = len(entries) - len(lines)
    return [*lines, f"and {more} more"] if more else lines
