"""Packs the archive of wheels that hosts install from."""

import io
import os
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from trainer.host.whole_files import file_sha256

# The space that the interpreter itself and uv's records need.
SPARE_BYTES = 20_000_000
BLOCK_OF_DISK_BYTES = 4096
BYTE_CODE_PER_SOURCE = 1.5


def pack(wheels: Path, lock: str, archive: Path) -> str:
    """Write the wheels, the lock and the program `uv` into one tar archive; return its SHA-256 in hex digits.

    `wheels` is the folder of the wheels, with a wheel of uv, from which the program is taken; `lock` is the
    text of the lock. In the archive they are wheels/*.whl, requirements.txt and uv. Nothing is compressed,
    because wheels are.
    """
    installer = next(wheels.glob("uv-*.whl"))
    with archive.open("wb") as writer:
        with tarfile.open(fileobj=writer, mode="w") as stream:
            for wheel in sorted(wheels.glob("*.whl")):
                if wheel != installer:
                    stream.add(
                        wheel, arcname=f"wheels/{wheel.name}", recursive=False, filter=with_fixed_attributes
                    )
            add_file(stream, "requirements.txt", lock.encode(), 0o644)
            with zipfile.ZipFile(installer) as content:
                name = next(name for name in content.namelist() if name.endswith(".data/scripts/uv"))
                add_file(stream, "uv", content.read(name), 0o755)
        writer.flush()
        os.fsync(writer.fileno())
    return file_sha256(archive)


def add_file(stream: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    """Add a file `name` with this content and mode to an archive."""
    member = with_fixed_attributes(tarfile.TarInfo(name))
    member.size, member.mode = len(content), mode
    stream.addfile(member, io.BytesIO(content))


def with_fixed_attributes(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Set time 0 and the owner root, and let all users read the member; return the member.

    If its owner may execute it, all users may.
    """
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = "root"
    member.mode = 0o755 if member.mode & 0o100 else 0o644
    return member


def installed_bytes(wheels: Iterable[Path]) -> int:
    """Return the disk space that these wheels and their byte code need once they are installed, in bytes.

    It is an estimate from the lists of their files. For the environments with and without CUDA, it is 3% more
    than the most that they need on ext4.
    """
    total = SPARE_BYTES
    for path in wheels:
        with zipfile.ZipFile(path) as wheel:
            for file in wheel.infolist():
                total += file.file_size + BLOCK_OF_DISK_BYTES
                if file.filename.endswith(".py"):
                    total += int(BYTE_CODE_PER_SOURCE * file.file_size)
    return total
