"""Installs an environment once on the controller, and packs it for the hosts."""

import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import zstandard

from plugins.module_utils.content_directory import unpack
from plugins.module_utils.deployment import MARKER
from plugins.module_utils.environments.environment import HostEnvironment
from plugins.module_utils.environments.installation import (
    ELSEWHERE,
    empty_command,
    filling_commands,
    filling_settings,
    make_commands_own,
)
from psfleet.carry.wheel_archive import BLOCK_OF_DISK_BYTES, SPARE_BYTES, with_fixed_attributes


def can_fill(environment: HostEnvironment) -> bool:
    """Return whether this machine has both the environment's processor and its version of Python."""
    return (
        environment.machine == platform.machine() and shutil.which(f"python{environment.python}") is not None
    )


def fill_and_pack(wheels: Path, environment: HostEnvironment, archive: Path) -> int:
    """Install an environment from an archive of wheels, pack it into `archive`, and return its size.

    `wheels` is that archive. The size is the disk space that the environment needs on a host, in bytes. No
    code of the wheels is run. Raises OSError, and ValueError with the output of a step that fails.
    """
    with tempfile.TemporaryDirectory(dir=archive.parent) as directory:
        work = Path(directory)
        place, home = work / "environment", work / "home"
        home.mkdir()
        unpack(wheels, work)
        settings = filling_settings(home)
        _run(empty_command(place, environment.python), settings)
        # A host creates these files itself, with its own Python.
        python = {*place.rglob("*")}
        for command in filling_commands(place, work, environment.python):
            _run(command, settings)
        if os.path.lexists(place / MARKER):
            raise ValueError(f"a package contains {MARKER}, which marks complete environments")
        python -= {path for path in python if path.is_dir()}
        # uv may write the path with or without resolved links.
        for base in {bytes(place), bytes(place.resolve())}:
            make_commands_own(place, base, ELSEWHERE)
        return _pack(place, python, archive)


def _run(command: list[str], settings: dict[str, str]) -> None:
    done = subprocess.run(command, env=settings, cwd="/", capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip())[-3000:]
        raise ValueError(f"{' '.join(command)} ended with {done.returncode}: {output}")


def _pack(place: Path, left_out: set[Path], archive: Path) -> int:
    """Pack the files of an environment into `archive`; return the disk space that they need, in bytes.

    The files in `left_out` and links are left out. In the archive, the files belong to root, and all users
    can read them. Their times are kept, because byte code needs them.
    """
    size = SPARE_BYTES
    compressor = zstandard.ZstdCompressor(threads=-1)
    with (
        archive.open("wb") as file,
        compressor.stream_writer(file) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT) as stream,
    ):
        for path in _files(place):
            if path not in left_out:
                found, member = path.stat(), tarfile.TarInfo(str(path.relative_to(place)))
                member.mode = found.st_mode
                member = with_fixed_attributes(member)
                member.size, member.mtime = found.st_size, int(found.st_mtime)
                with path.open("rb") as content:
                    stream.addfile(member, content)
                size += member.size + BLOCK_OF_DISK_BYTES
    return size


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
