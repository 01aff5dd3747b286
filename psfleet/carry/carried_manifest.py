"""The files that deploy.yml carries to hosts: their manifest, and archives with parts of the files."""

import hashlib
import json
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from plugins.module_utils.content_directory import files_below
from psfleet.carry.long_step import MEGABYTE, REPORT_SECONDS, report_progress
from trainer.host.whole_files import file_sha256


class CarriedFile(NamedTuple):
    """A file on the controller, as it was when its SHA-256 was computed.

    `path` is its path, `size` its bytes, `mtime_ns` the time of its last change in nanoseconds, and `sha256`
    its hash in hex digits.
    """

    path: str
    size: int
    mtime_ns: int
    sha256: str


def find_files(sources: Mapping[str, Path], only: str = "") -> dict[str, Path]:
    """Return {name of a file on the hosts: its path on the controller}, sorted by name.

    `sources` is {path below which a source goes on the hosts, or "": source}; a source is a folder or a file.
    If two sources have the same name, the later one counts. Only files whose own name contains `only` are
    returned. Raises ValueError for a link to a folder and a name that is not UTF-8, and FileNotFoundError if
    a source is missing.

    Example: find_files({"data": Path("/a")}) -> {"data/b/c.txt": Path("/a/b/c.txt")}
    """
    found: dict[str, Path] = {}
    for below, source in sources.items():
        if not source.exists():
            raise FileNotFoundError(f"there is no {source}")
        found |= {
            f"{below}/{name}" if below else name: path
            for name, path in files_below(source).items()
            if only in path.name
        }
    return dict(sorted(found.items()))


def manifest_path(sources: Mapping[str, Path], cache: Path) -> Path:
    """Return the path of the manifest of `sources` in the controller's `cache`; the file need not exist.

    `sources` are as for `find_files`; other sources have another path.
    """
    key = json.dumps({below: str(source) for below, source in sources.items()})
    return cache / "carried" / f"{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"


def read_manifest(path: Path) -> dict[str, CarriedFile]:
    """Return {name on the hosts: file} of the manifest at `path`; {} if it is missing or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {name: CarriedFile(*known) for name, known in content.items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):  # no JSON, or other JSON
        return {}


def write_manifest(
    sources: Mapping[str, Path], index: Path, say: Callable[[str], None], only: str = ""
) -> dict[str, CarriedFile]:
    """Write the new manifest at `index`, and return its {name on the hosts: file}, sorted by name.

    `sources` and `only` are as for `find_files`. SHA-256 are computed only of files whose path, size or time
    differs from the last manifest. `say` gets lines about the progress. Raises what `find_files` raises, and
    OSError if a file cannot be read or the manifest cannot be written.
    """
    known, files, hashed = read_manifest(index), {}, 0
    with report_progress(say, lambda: f"{hashed // MEGABYTE} MB read", REPORT_SECONDS):
        for name, path in find_files(sources, only).items():
            found, before = path.stat(), known.get(name)
            as_it_is = (str(path), found.st_size, found.st_mtime_ns)
            if before and before[:3] == as_it_is:
                files[name] = before
            else:
                files[name] = CarriedFile(*as_it_is, file_sha256(path))
                hashed += found.st_size
    index.parent.mkdir(parents=True, exist_ok=True)
    index.parent.chmod(0o700)  # the names of a user's files are the user's
    fresh = index.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(files), encoding="utf-8")
    fresh.replace(index)
    return files


def manifest_bytes(files: Mapping[str, CarriedFile]) -> bytes:
    """Return the manifest as JSON, in the format that hosts read: {name: [size in bytes, SHA-256]}."""
    return json.dumps({name: [file.size, file.sha256] for name, file in files.items()}).encode()


class Part(NamedTuple):
    """A part of a file: `size` bytes from `offset` on.

    `place` is the position of the file in the manifest, from 0, and `path` is its path on the controller.
    """

    place: int
    path: str
    offset: int
    size: int


def batches(files: Mapping[str, CarriedFile], places: Iterable[int], limit: int) -> Iterator[list[Part]]:
    """Yield lists of parts of the files at the positions `places` in the manifest, in the order of `places`.

    The parts of a list have `limit` bytes in total; the last list may have fewer. A large file is in several
    lists; an empty file is a part of 0 bytes.
    """
    listed = list(files.values())
    batch: list[Part] = []
    room = limit
    for place in places:
        file, offset = listed[place], 0
        while True:
            size = min(room, file.size - offset)
            batch.append(Part(place, file.path, offset, size))
            offset, room = offset + size, room - size
            if room == 0:
                yield batch
                batch, room = [], limit
            if offset >= file.size:
                break
    if batch:
        yield batch


def pack(parts: Iterable[Part], archive: Path) -> None:
    """Write parts of files into a new tar archive, each under the name "place.offset", such as "3.1000000".

    An archive of this name is overwritten. Raises OSError if a file has become shorter or cannot be read.
    """
    with tarfile.open(archive, "w") as stream:
        for part in parts:
            member = tarfile.TarInfo(f"{part.place}.{part.offset}")
            member.size = part.size
            with Path(part.path).open("rb") as content:
                content.seek(part.offset)
                try:
                    stream.addfile(member, content)
                except OSError as error:
                    raise OSError(f"{part.path} was changed while it was carried: {error}") from error
