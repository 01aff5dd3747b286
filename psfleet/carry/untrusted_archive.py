"""Reads a .tar.gz that a stranger made: member by member, within fixed memory and time.

Python's `tarfile` reads headers of any kind into lists before it returns a member, keeps all members, and
decompresses as much as a header says. So only its parser of one block of 512 bytes is used here. Only Python
itself is needed, because the verdict needs this module.
"""

import io
import re
import tarfile
import zlib
from collections.abc import Iterator
from typing import IO, Protocol

# The average size of all headers of a file with a long name.
BYTES_OF_HEADERS = 4096
# The most bytes of one extended header, the most records in it, and the most such headers of one file.
MOST_OF_A_HEADER, MOST_RECORDS, MOST_HEADERS = 64_000, 64, 4
# The most bytes that are in memory at once.
PIECE = 1 << 16
_BLOCK = tarfile.BLOCKSIZE
_PAX_HEADERS = {tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE}
_LONG_NAMES = {tarfile.GNUTYPE_LONGNAME: b"path", tarfile.GNUTYPE_LONGLINK: b"linkpath"}
_RECORD = re.compile(rb"([0-9]{1,6}) ([^=\n]{1,256})=")
_SIZE = re.compile(rb"[0-9]{1,18}")


class ArchiveError(ValueError):
    """The archive is damaged, or asks for more than any archive of a run needs."""


class Content(Protocol):
    """The content of a file in an archive."""

    def read(self, size: int = -1, /) -> bytes:
        """Return `size` bytes, fewer at the end of the file; all remaining bytes if `size` is negative."""


class _Unzipped(io.RawIOBase):
    """The decompressed content of a .gz file; what follows its first part (gzip member) is ignored."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._zip = file, zlib.decompressobj(wbits=31)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Decompress some bytes into the buffer, at most as many as fit; return their number, 0 at the end.

        Raises ArchiveError if the file is no gzip file, is damaged or ends too early.
        """
        while not self._zip.eof:
            packed = self._zip.unconsumed_tail or self._file.read(PIECE)
            try:
                piece = self._zip.decompress(packed, len(buffer))
            except zlib.error as error:
                what = "not a gzip file" if "header check" in str(error) else f"it is damaged: {error}"
                raise ArchiveError(what) from error
            if piece:
                buffer[: len(piece)] = piece
                return len(piece)
            if not packed:
                raise ArchiveError("it ends too early")
        return 0


class _Piecewise:
    """The next `left` bytes of a stream."""

    def __init__(self, stream: IO[bytes], left: int) -> None:
        self._stream, self.left = stream, left

    def read(self, size: int = -1, /) -> bytes:
        wanted = self.left if size < 0 else min(size, self.left)
        block = _exactly(self._stream, wanted)
        self.left -= wanted
        return block

    def skip(self, padding: int) -> None:
        """Read the remaining bytes, and `padding` bytes after them, and forget them."""
        self.left += padding
        while self.left:
            self.read(PIECE)


def members(file: IO[bytes], most_members: int) -> Iterator[tuple[tarfile.TarInfo, Content]]:
    """Yield (member, its content) for each member of a .tar.gz, in its order.

    The content can be read until the next member is requested. There may be more than `most_members`: the
    caller counts members and their sizes. Raises OSError, and ArchiveError for a damaged or sparse archive,
    and for headers that are larger than the headers of `most_members` files.
    """
    stream = io.BufferedReader(_Unzipped(file), PIECE)
    headers_left = most_members * BYTES_OF_HEADERS
    while (found := _next(stream)) is not None:
        member, size = found
        headers_left -= size
        if headers_left < 0:
            raise ArchiveError("its headers are larger than any file needs")
        content = _Piecewise(stream, member.size)
        yield member, content
        content.skip(-member.size % _BLOCK)


def _next(stream: IO[bytes]) -> tuple[tarfile.TarInfo, int] | None:
    """Return (next member, bytes of its headers); None at the end of the archive.

    If several extended headers have the same field, the first one counts, as in `tarfile`. Raises
    ArchiveError for headers that are damaged, too large or too many.
    """
    fields: dict[bytes, bytes] = {}
    size = 0
    for _ in range(MOST_HEADERS + 1):
        block = stream.read(_BLOCK)
        if not fields and not block.strip(b"\0"):
            return None
        try:
            member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.TarError as error:
            raise ArchiveError(f"it has a damaged header ({error})") from error
        size += _BLOCK
        if member.type not in _PAX_HEADERS and member.type not in _LONG_NAMES:
            return _with_extended_fields(member, fields), size
        if not 0 <= member.size <= MOST_OF_A_HEADER:
            raise ArchiveError(f"it has a header of {member.size:,} bytes, which no file needs")
        header = _exactly(stream, member.size)
        size += member.size + len(_exactly(stream, -member.size % _BLOCK))
        name = _LONG_NAMES.get(member.type)
        fields = (_records(header) if name is None else {name: header.partition(b"\0")[0]}) | fields
    raise ArchiveError(f"it has more than {MOST_HEADERS} headers for one file")


def _with_extended_fields(member: tarfile.TarInfo, fields: dict[bytes, bytes]) -> tarfile.TarInfo:
    """Set name, link target and size of the member from `fields`, if they are there; return the member.

    `fields` are the fields of its extended headers. Links, folders and devices get the size 0. Raises
    ArchiveError for an invalid size, and for a sparse or global member.
    """
    if member.type in {tarfile.GNUTYPE_SPARSE, tarfile.XGLTYPE}:
        raise ArchiveError(f"it has a header of type {member.type.decode()!r}, which no archive of a run has")
    member.name = _text(fields.get(b"path")) or member.name
    member.linkname = _text(fields.get(b"linkpath")) or member.linkname
    if (size := fields.get(b"size")) is not None:
        if not _SIZE.fullmatch(size):
            raise ArchiveError(f"it has a file of {size[:30].decode(errors='replace')!r} bytes")
        member.size = int(size)
    if not member.isreg() and member.type in tarfile.SUPPORTED_TYPES:
        member.size = 0  # links, folders and devices have no content, whatever their headers say
    if member.size < 0:
        raise ArchiveError(f"it has a file of {member.size:,} bytes")
    return member


def _records(header: bytes) -> dict[bytes, bytes]:
    """Return {key: value} of the records in a PAX header; {} if it is empty.

    If a key is there twice, the last one counts. Raises ArchiveError if a record is damaged or sparse, or if
    there are more than MOST_RECORDS - 1.
    """
    found: dict[bytes, bytes] = {}
    place = 0
    for _ in range(MOST_RECORDS):
        if place == len(header):
            return found
        begin = _RECORD.match(header, place)
        end = place + int(begin[1]) if begin else 0
        if begin is None or not begin.end() < end <= len(header) or header[end - 1 : end] != b"\n":
            raise ArchiveError("it has a damaged header")
        if begin[2].startswith(b"GNU.sparse"):
            raise ArchiveError("it has a sparse file, which no archive of a run has")
        found[begin[2]] = header[begin.end() : end - 1]
        place = end
    raise ArchiveError(f"it has a header of more than {MOST_RECORDS} records")


def _text(name: bytes | None) -> str:
    return (name or b"").decode("utf-8", "surrogateescape").rstrip("/")


def _exactly(stream: IO[bytes], size: int) -> bytes:
    block = stream.read(size)
    if len(block) < size:
        raise ArchiveError("it ends too early")
    return block
