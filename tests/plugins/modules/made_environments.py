"""Environments for tests: the controller's description of them, and the module's own class."""

import hashlib
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from plugins.modules import python_environment as module
from psfleet.carry.wheel_archive import add_file
from tests.psfleet.carry.made_wheels import lock_line, make_package

NAME = "psfleet_sample"
UV = Path(sys.prefix) / "bin" / "uv"
# One that does what it should, and then something else in the new environment.
INSTALLER = """#!/usr/bin/env python3
import os, pathlib, signal, socket, subprocess, sys
subprocess.run([pathlib.Path(__file__).parent / "own" / "uv", *sys.argv[1:]], check=True)
os.chdir(next(word for word in sys.argv if word.startswith("--python=")).partition("=")[2])
"""


def make_archive(
    path: Path,
    name: str = NAME,
    locked_hash: str = "",
    files: Mapping[str, str] = MappingProxyType({}),
    after: str = "",
) -> Path:
    """Write what the controller carries: a package with one module and one program, its lock, and uv.

    `files` are more of the package's. `after` is what the installer does when it has installed, in Python.
    """
    files = {
        f"{name}.py": "__version__ = '1.0'\n\ndef main():\n    import sys; print(sys.prefix)\n",
        "{information}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
        **files,
    }
    found = make_package(path.with_suffix(".wheels"), name, files=files)
    lock = path.parent / f"{name}.txt"
    lock.write_text(lock_line(f"{name}==1.0", locked_hash or found))
    with tarfile.open(path, "w") as stream:
        for wheel in path.with_suffix(".wheels").iterdir():
            stream.add(wheel, f"wheels/{wheel.name}")
        stream.add(lock, "requirements.txt")
        stream.add(UV, "uv" if not after else "own/uv")
        if after:
            add_file(stream, "uv", f"{INSTALLER}{after}\n".encode(), 0o755)
    return path


def environment(
    host: Path,
    archive: Path,
    name: str = "0123456789ab",
    *,
    link: str = "environment",
    **described: object,
) -> Any:  # noqa: ANN401
    """Return the environment; `described` are more fields of what the controller says of it."""
    wheels = {
        "lock_hash": name,
        "archive_sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "archive_bytes": archive.stat().st_size,
        "environment_bytes": 1,
        "python_version": f"{sys.version_info[0]}.{sys.version_info[1]}",
        **described,
    }
    return module.Environment(host, wheels, link)


def install(fresh: Any, archive: Path, name: str = NAME) -> str:  # noqa: ANN401
    return str(fresh.install(archive, name))
