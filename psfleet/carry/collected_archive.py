"""Unpacks the archive of files that a host packed, and trusts nothing in it."""

import errno
import io
import re
import shutil
import tarfile
import tempfile
from collections.abc import Container, Iterable
from pathlib import Path, PurePosixPath

from psfleet.carry.collected_files import Places
from psfleet.carry.earlier_files import CHECKPOINT_STATE, MOST_OF_A_STATE
from psfleet.carry.untrusted_archive import BYTES_OF_HEADERS, PIECE, ArchiveError, Content, members

# `host_runs` packs at most this many members.
MOST_MEMBERS = 10_000
# The most texts from a host that are shown, and the most characters of each.
MOST_SHOWN = 21
LONGEST_SHOWN = 300
_PATH_OF_HOST = re.compile(
    rb'^((?:model_checkpoint_path|all_model_checkpoint_paths): ")/[^"\n]*/', re.MULTILINE
)


def most_archive_bytes(most_bytes: int) -> int:
    """Return the largest size in bytes of an archive of up to MOST_MEMBERS files, `most_bytes` in total."""
    return most_bytes + most_bytes // 100 + MOST_MEMBERS * BYTES_OF_HEADERS


def unpack(archive: Path, places: Places, most_bytes: int) -> tuple[list[str], list[str]]:
    """Write the archive's files to their places; return (names of the files, reasons for refused files).

    Members of at most `most_bytes` in total are read; the rest is refused, with one reason. If the archive is
    damaged, the files before the damage are kept, and the last reason is the damage. Raises OSError if the
    run's folder cannot be created.
    """
    names: list[str] = []
    refused: list[str] = []
    with places.locked():
        try:
            _unpack(archive, places, most_bytes, names, refused)
        except (OSError, ArchiveError) as error:
            refused.append(f"everything after the first {len(names)} files: the archive is damaged: {error}")
    return names, refused


def _unpack(archive: Path, places: Places, most_bytes: int, names: list[str], refused: list[str]) -> None:
    places_of: dict[str, Path] = {}
    with (
        archive.open("rb") as file,
        # Someone may be judging an earlier file right now, so a new file replaces it only when it is
        # complete.
        tempfile.TemporaryDirectory(prefix=".", dir=places.folder) as directory,
    ):
        for number, (member, content) in enumerate(members(file, MOST_MEMBERS)):
            name = repr(member.name[:LONGEST_SHOWN])[:LONGEST_SHOWN]
            most_bytes -= member.size
            if most_bytes < 0:
                refused.append(f"{name} and everything after it: more than was requested of the host")
                return
            if number >= MOST_MEMBERS:
                refused.append(f"{name} and everything after it: more than {MOST_MEMBERS} files")
                return
            fresh = Path(directory) / f"{number}"
            try:
                if why := _refusal(member, places, places_of):
                    raise OSError(errno.EINVAL, why)
                if member.islnk():
                    fresh.hardlink_to(places_of[member.linkname])
                else:
                    _write(fresh, content, member)
                places_of[member.name] = places.put(fresh, member.name)
            except OSError as error:
                refused.append(f"{name}: {error.strerror or error}")
                fresh.unlink(missing_ok=True)
            else:
                names.append(member.name)


def _refusal(member: tarfile.TarInfo, places: Places, earlier: Container[str]) -> str:
    """Return why a member of the archive is refused; "" if it is not.

    `earlier` are the names of the files that have been unpacked. A link may only lead to one of them, and the
    file is not copied instead of the link: with copies, a host could fill the disk with few bytes.
    """
    if not (member.isfile() or member.islnk()):
        return "it is no file"
    if member.name in earlier:
        return "it is in the archive twice"
    if member.islnk() and member.linkname not in earlier:
        return f"a link to {member.linkname[:LONGEST_SHOWN]!r}, which is no earlier file of the archive"
    return places.refusal(member.name)


def relative_state(state: bytes) -> bytes:
    """Return the content of a file `checkpoint` with relative paths; on the host, they may be absolute.

    With absolute paths, TensorFlow would find nothing on the controller, or somebody else's file.

    Example: model_checkpoint_path: "/srv/run/model-5" -> model_checkpoint_path: "model-5"
    """
    return _PATH_OF_HOST.sub(rb"\1", state)


def _write(fresh: Path, content: Content, member: tarfile.TarInfo) -> None:
    if PurePosixPath(member.name).name == CHECKPOINT_STATE and member.size <= MOST_OF_A_STATE:
        content = io.BytesIO(relative_state(content.read()))
    with fresh.open("wb") as out:
        shutil.copyfileobj(content, out, PIECE)


def printable_lines(texts: Iterable[object]) -> list[str]:
    """Return the first MOST_SHOWN texts of a host as printable lines; if there are more, then "and N more".

    A line has at most LONGEST_SHOWN characters.
    """
    entries = [str(text) for text in texts]
    lines = [repr(entry[:LONGEST_SHOWN])[1:-1][:LONGEST_SHOWN] for entry in entries[:MOST_SHOWN]]
    more = len(entries) - len(lines)
    return [*lines, f"and {more} more"] if more else lines
