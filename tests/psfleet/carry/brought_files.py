"""Files of hosts, as they come to the controller."""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

from psfleet.carry.collected_archive import unpack
from psfleet.carry.collected_files import Places, allowed_names

HOSTS = ["n1", "n2", "n3"]
OF_NODE1 = [{"name": "ps0"}, {"name": "worker0"}]


def packed(path: Path, files: Sequence[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as stream:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            stream.addfile(member, io.BytesIO(content))
    return path


def places_of(folder: Path, host: str = "n1", *, program: bool = True) -> Places:
    return Places(folder, host, HOSTS, allowed_names(OF_NODE1, "worker0", program=program))


def bring(folder: Path, host: str, files: dict[str, str]) -> list[str]:
    """Collect files of a program from a host; return the refused ones."""
    archive = packed(folder.parent / "a.tar.gz", [(name, text.encode()) for name, text in files.items()])
    return unpack(archive, places_of(folder, host), 1000)[1]


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
