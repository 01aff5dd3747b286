"""Unpack the archive that a host made up: nothing in it is believed."""

import gzip
import io
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from psfleet.carry.collected_files import Places

# As many as `run_archive` packs.
MOST_MEMBERS = 10_000
# The headers of a file with a long name.
BYTES_OF_HEADERS = 4096
# A header is read at once: so many bytes of it.
MOST_OF_A_HEADER = 1024 * 1024
# Of texts that a host made up, so many are shown, so far.
MOST_SHOWN = 21
LONGEST_SHOWN = 300
# What TensorFlow finds the newest checkpoint of a folder by, as far as a folder has checkpoints.
CHECKPOINT_STATE, MOST_OF_A_STATE = "checkpoint", 1024 * 1024
_PATH_OF_HOST = re.compile(
    rb'^((?:model_checkpoint_path|all_model_checkpoint_paths): ")/[^"\n]*/', re.MULTILINE
)
# What reading a damaged archive raises.
DAMAGED = (OSError, EOFError, tarfile.TarError, zlib.error, ValueError, OverflowError, RecursionError)


class BoundedGzip(gzip.GzipFile):
    """Reads the headers of an archive up to a limit, and of contents what was added to `bytes_left`."""

    bytes_left = MOST_MEMBERS * BYTES_OF_HEADERS

    def read(self, size: int | None = -1) -> bytes:
        """Read `size` bytes. Raises tarfile.ReadError where it is more than an honest archive needs."""
        if size is None or not 0 <= size <= min(self.bytes_left, MOST_OF_A_HEADER):
            raise tarfile.ReadError("its headers are larger than those of any files")
        self.bytes_left -= size
        return super().read(size)


def most_packed(most_bytes: int) -> int:
    """Return how large an archive of files with together `most_bytes` may be, in bytes."""
    return most_bytes + most_bytes // 100 + MOST_MEMBERS * BYTES_OF_HEADERS


def unpack(archive: Path, places: Places, most_bytes: int) -> tuple[list[str], list[str]]:
    """Write the archive's files where they go; return the names of those, and why others were refused.

    Members of not more than `most_bytes` are looked at, whatever the archive holds. A damaged archive counts
    up to where it is damaged. Raises OSError where the run's folder cannot be written.
    """
    names: list[str] = []
    refused: list[str] = []
    with places.taken():
        try:
            _unpack(archive, places, most_bytes, names, refused)
        except DAMAGED as error:
            refused.append(f"what follows {len(names)} files: the archive is damaged: {error}")
    return names, refused


def _unpack(archive: Path, places: Places, most_bytes: int, names: list[str], refused: list[str]) -> None:
    with BoundedGzip(archive) as packed, tarfile.open(fileobj=packed, mode="r:") as stream:
        for number, member in enumerate(stream):
            most_bytes -= member.size
            if member.size < 0 or most_bytes < 0:
                refused.append(f"{member.name!r} and what follows: more than the host was asked for")
                return
            if number >= MOST_MEMBERS:
                refused.append(f"{member.name!r} and what follows: more than {MOST_MEMBERS} files")
                return
            try:
                place = places.place(member.name) if member.isfile() else None
                content = stream.extractfile(member) if place else None
                if place is None or content is None:
                    why = places.refusal(member.name) if member.isfile() else "it is no file"
                    refused.append(f"{member.name!r}: {why}")
                    continue
                packed.bytes_left += member.size
                if place.name == CHECKPOINT_STATE and member.size <= MOST_OF_A_STATE:
                    content = io.BytesIO(relative_state(content.read()))
                _write(place, content)
            except (NotADirectoryError, IsADirectoryError, FileExistsError) as error:
                refused.append(f"{member.name!r}: {error.strerror}, of another host")
            except OSError as error:
                refused.append(f"{member.name!r}: {error.strerror or error}")
            else:
                names.append(member.name)


def relative_state(state: bytes) -> bytes:
    """Return the same with checkpoints named as they lie beside it: on the host a path may be of its disk.

    Here TensorFlow would find nothing there, or what somebody else has.
    """
    return _PATH_OF_HOST.sub(rb"\1", state)


def _write(place: Path, content: IO[bytes]) -> None:
    """Write a file whole or not at all: somebody else may be judging what was collected before."""
    place.parent.mkdir(parents=True, exist_ok=True)
    # A directory of its own, for the name of the file may be as long as names can be.
    with tempfile.TemporaryDirectory(prefix=".", dir=place.parent) as directory:
        fresh = Path(directory) / ".new"  # hidden, so no manifest names it
        with fresh.open("wb") as out:
            shutil.copyfileobj(content, out)
        fresh.replace(place)


def shown(texts: Iterable[object]) -> list[str]:
    """Return the first of some texts that a host made up, each as one printable line of bounded length."""
    entries = [str(text) for text in texts]
    lines = [repr(entry[:LONGEST_SHOWN])[1:-1][:LONGEST_SHOWN] for entry in entries[:MOST_SHOWN]]
    more = len(entries) - len(lines)
    return [*lines, f"and {more} more"] if more else lines
