"""How an environment is filled from wheels, by uv alone: on a host, or on the controller for many hosts."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

BLOCK_BYTES = 1 << 20
# The place of an environment in the scripts of one that was filled elsewhere.
ELSEWHERE = b"/psfleet-filled-elsewhere"
# Compiles what its account has below a folder, a process for each core; no module of it is run.
COMPILE = """
import compileall, functools, os, pathlib, sys
from concurrent.futures import ProcessPoolExecutor
own = [path for path in pathlib.Path(sys.argv[1]).rglob("*.py") if path.lstat().st_uid == os.getuid()]
with ProcessPoolExecutor() as pool:
    list(pool.map(functools.partial(compileall.compile_file, quiet=2), own, chunksize=32))
"""


def python_command(version: str) -> list[str]:
    """Return how a Python is started that sees nothing but itself."""
    return [f"python{version}", "-I", "-S"]


def empty_command(place: Path, version: str) -> list[str]:
    """Return the command that makes an environment of this host's Python with nothing in it."""
    return [*python_command(version), "-m", "venv", "--without-pip", str(place)]


def filling_commands(place: Path, unpacked: Path, version: str) -> list[list[str]]:
    """Return the commands that fill an empty environment from an archive of wheels that was unpacked."""
    # The lock is whole: uv need not look for what its packages require, some of which a base has.
    install = [str(unpacked / "uv"), "pip", "install", "--quiet", f"--python={place}"]
    install += ["--require-hashes", "--no-deps", "--no-index", f"--find-links={unpacked / 'wheels'}"]
    install += [f"--requirement={unpacked / 'requirements.txt'}"]
    # Without byte code each start of a task takes three seconds longer, and tasks may not write it.
    return [install, [*python_command(version), "-c", COMPILE, str(place / "lib")]]


def filling_settings(home: Path) -> dict[str, str]:
    """Return the environment of these commands. They write below `home`, beside the place."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": str(home),
        "LC_ALL": "C.UTF-8",
        "UV_CACHE_DIR": str(home / "cache"),
        "UV_NO_CONFIG": "1",
        "UV_OFFLINE": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_LINK_MODE": "hardlink",
    }


def make_commands_own(place: Path, base: bytes, own_place: bytes = b"") -> None:
    """Let what lies in bin/ of an environment, and its configuration, name its own place rather than `base`.

    `own_place` is where it is to be, if that is not here.
    """
    for path in [place / "pyvenv.cfg", *(place / "bin").iterdir()]:
        content = b"" if path.is_symlink() else path.read_bytes()
        if base in content:
            own = path.with_name(f".{path.name}")
            own.write_bytes(content.replace(base, own_place or bytes(place)))
            own.chmod(path.stat().st_mode)
            own.replace(path)


def unpack_filled(archive: Path, place: Path) -> None:
    """Unpack an environment that was filled elsewhere into one that is empty. Raises ValueError, OSError."""
    command = ["tar", "--extract", "--file=-", "--no-same-owner"]
    command += ["--blocking-factor=1024", f"--directory={place}"]  # half a megabyte at a time
    with tempfile.TemporaryFile() as said, archive.open("rb") as stream:
        # Where it ends before it has read all, it says why.
        with (
            suppress(BrokenPipeError),
            subprocess.Popen(command, stdin=subprocess.PIPE, stderr=said) as tar,
        ):
            for block in decompressed(stream):
                tar.stdin.write(block)  # type: ignore[union-attr]
        if tar.returncode:
            said.seek(0)
            words = said.read(1000).decode(errors="replace").strip()
            raise ValueError(f"{' '.join(command)} ended with {tar.returncode}: {words}")
    make_commands_own(place, ELSEWHERE)


class _Buffer(ctypes.Structure):
    """ZSTD_inBuffer and ZSTD_outBuffer of zstd.h."""

    _fields_ = (
        ("place", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("position", ctypes.c_size_t),
    )


def decompressed(stream: IO[bytes]) -> Iterator[memoryview]:
    """Yield what Zstandard (RFC 8878) has packed, by the library that the host's dpkg needs, too.

    Each block holds until the next is asked for. Raises ValueError where it is damaged, or ends too early.
    """
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_createDStream.restype = ctypes.c_void_p
    library.ZSTD_decompressStream.restype = ctypes.c_size_t
    context = ctypes.c_void_p(library.ZSTD_createDStream())
    space = ctypes.create_string_buffer(BLOCK_BYTES)
    left = 1  # bytes that it would like next; 0 at the end of a frame
    try:
        while block := stream.read(BLOCK_BYTES):
            given = _Buffer(ctypes.cast(ctypes.c_char_p(block), ctypes.c_void_p), len(block), 0)
            while given.position < given.size:
                made = _Buffer(ctypes.addressof(space), BLOCK_BYTES, 0)
                left = library.ZSTD_decompressStream(context, ctypes.byref(made), ctypes.byref(given))
                if library.ZSTD_isError(ctypes.c_size_t(left)):
                    raise ValueError("it is not what Zstandard has packed")
                yield memoryview(space)[: made.position]
        if left:
            raise ValueError("it ends before its end")
    finally:
        library.ZSTD_freeDStream(context)
