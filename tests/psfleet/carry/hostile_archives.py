"""Archives of some kilobytes that ask their reader for gigabytes, or for minutes.

`python -m tests.psfleet.carry.hostile_archives FILE FOLDER` reads one by both readers, in a process whose
memory and time are limited, and prints what they say.
"""

import gzip
import resource
import sys
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

from psfleet.carry.collected_archive import unpack
from psfleet.carry.collected_files import Places, allowed_names
from psfleet.evidence.packed_run import unpacked_run

# Beside what a process has that has imported the readers. A good archive needs less than a megabyte.
MOST_MEMORY, MOST_SECONDS = 32 << 20, 10
MOST_BYTES = 40_000_000  # of the files of a host
NAME = "r/output/x"


def member(kind: bytes, content: bytes = b"", name: str = NAME, size: int | None = None) -> bytes:
    """Return a header of this type, and its content."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content) if size is None else size
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def record(keyword: str, value: str) -> bytes:
    """Return a record of a PAX header."""
    rest = f" {keyword}={value}\n".encode("utf-8", "surrogateescape")
    length = len(rest) + 1
    while length != len(f"{length}".encode() + rest):
        length += 1
    return f"{length}".encode() + rest


def pax(*records: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    """Return a PAX header."""
    return member(kind, b"".join(records))


def old_sparse(extended: int, real_size: int = 10**12) -> bytes:
    """Return a sparse file of old GNU tar, with so many further blocks of its map."""
    header = bytearray(member(tarfile.GNUTYPE_SPARSE))
    struct = b"%011o\0%011o\0"
    header[386 : 386 + 96] = struct % (0, 1) * 4
    header[482] = bool(extended)
    header[483:495] = b"%011o\0" % real_size if real_size < 8**11 else b"\x80" + real_size.to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    maps = [struct % (8, 1) * 21 + bytes([left > 1]) + bytes(7) for left in range(extended, 0, -1)]
    return bytes(header) + b"".join(maps)


def odd_gzip(tar: bytes) -> bytes:
    """Return a .gz whose header has a name of 20 MB."""
    plain = gzip.compress(tar, 1)
    return plain[:3] + b"\x08" + plain[4:10] + b"x" * 20_000_000 + b"\0" + plain[10:]


MAP = ",".join(map(str, range(5000)))
MANY = "".join(f"{number},1," for number in range(400_000))
FILE = member(tarfile.REGTYPE, b"x")
FOLDER = member(tarfile.DIRTYPE)
TINY = [record(f"{number:x}", "") for number in range(70_000)]
# What is made, and what both readers say of it, or "" if they may read it.
KINDS: dict[str, tuple[Callable[[], bytes], str]] = {
    "sparse 0.1": (lambda: pax(record("GNU.sparse.map", MANY + "1,1")) + FILE, "header of"),
    "small sparse 0.1": (lambda: pax(record("GNU.sparse.map", MAP)) + FILE, "sparse"),
    "many sparse 0.1": (lambda: (pax(record("GNU.sparse.map", MAP)) + FILE) * 300, "sparse"),
    "sparse 0.0": (
        lambda: (
            pax(
                record("GNU.sparse.size", "9"),
                *[record("GNU.sparse.offset", "1"), record("GNU.sparse.numbytes", "1")] * 60_000,
            )
            + FILE
        ),
        "header of",
    ),
    "sparse 1.0": (
        lambda: (
            pax(record("GNU.sparse.major", "1"), record("GNU.sparse.minor", "0"))
            + member(tarfile.REGTYPE, b"1500000\n" + b"1\n" * 3_000_000)
        ),
        "sparse",
    ),
    "size of a sparse file": (
        lambda: (
            pax(
                record("GNU.sparse.major", "1"),
                record("GNU.sparse.minor", "0"),
                record("GNU.sparse.realsize", "999999999999"),
            )
            + FILE
        ),
        "sparse",
    ),
    "old sparse": (lambda: old_sparse(20_000), "type 'S'"),
    "seek of an old sparse file": (lambda: old_sparse(0) + bytes(30_000_000), "type 'S'"),
    "sparse header without a file": (lambda: pax(record("GNU.sparse.name", "x")) * 3, "sparse"),
    "global header": (lambda: pax(record("comment", "x"), kind=tarfile.XGLTYPE) + FILE, "type 'g'"),
    "chain of PAX headers": (
        lambda: b"".join(pax(record(f"k{n}", "x" * 60_000)) for n in range(900)) + FILE,
        "more than 4 headers",
    ),
    "chain of long names": (
        lambda: member(tarfile.GNUTYPE_LONGNAME, b"x" * 60_000) * 900 + FILE,
        "more than 4 headers",
    ),
    "many records": (lambda: pax(*TINY) + FILE, "header of"),
    "many records in small headers": (lambda: (pax(*TINY[:5000]) + FILE) * 80, "more than 64 records"),
    "large headers": (
        lambda: b"".join(pax(record("path", f"r/{n}/" + "x" * 60_000)) + FOLDER for n in range(4_000)),
        "than any file needs",
    ),
    "claimed header": (lambda: member(tarfile.XHDTYPE, size=9_000_000_000), "header of 9,000,000,000 bytes"),
    "negative header": (lambda: member(tarfile.XHDTYPE, size=-512) * 100, "header of -512 bytes"),
    "claimed file": (lambda: member(tarfile.REGTYPE, size=2**62), ""),
    "negative file": (lambda: member(tarfile.REGTYPE, size=-512) * 100, "file of -512 bytes"),
    "negative size in a record": (lambda: pax(record("size", "-512")) + FILE, "'-512' bytes"),
    "size of many digits": (lambda: pax(record("size", "9" * 4000)) + FILE, "bytes"),
    "record of many digits": (lambda: pax(b"9" * 4000 + b" a=b\n") + FILE, "damaged header"),
    "many folders": (lambda: FOLDER * 51_000, "more than"),
    "many names": (
        lambda: b"".join(pax(record("path", f"r/{n}/" + "\udcff" * 900)) + FOLDER for n in range(12_000)),
        "",
    ),
    "deep folders": (
        lambda: b"".join(pax(record("path", f"r/{n}/" + "d/" * 1900 + "x")) + FILE for n in range(200)),
        "",
    ),
    "endless name": (lambda: odd_gzip(FILE), ""),
    "many parts": (lambda: gzip.compress(FILE + bytes(1024)) + gzip.compress(b"") * 400_000, ""),
}


def compressed(made: bytes) -> bytes:
    return made if made.startswith(b"\x1f\x8b") else gzip.compress(made + bytes(1024), 1)


def read(archive: Path, folder: Path) -> Iterable[str]:
    """Yield what each reader says of an archive."""
    allowed = allowed_names([{"name": "worker0"}], "worker0", program=True)
    yield " ".join(unpack(archive, Places(folder / "run", "n1", ["n1"], allowed), MOST_BYTES)[1])
    try:
        with unpacked_run(archive):
            yield ""
    except (OSError, ValueError) as error:
        yield str(error)


if __name__ == "__main__":
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MOST_MEMORY, taken + MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    for said in read(Path(sys.argv[1]), Path(sys.argv[2])):
        sys.stdout.write(f"{said!r}\n")
